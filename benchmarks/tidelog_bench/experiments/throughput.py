"""Maximum throughput: the word count as fast as it goes, with the log and without.

Invariant: the variants of a pair differ in nothing but the log, the interval of checkpoints and
the local copies; the store is the same, and wide enough that the processor is what they share.
"""

from collections.abc import Sequence
from typing import Final

from tidelog_bench.embedded.jobs import OFF, OFF_RARE, ON, ListSource, word_count
from tidelog_bench.embedded.run import run_trial, spec_of
from tidelog_bench.experiment import Cell, Experiment, Figure, Ratio, Reading, Size, Trial

_COMMON: Final = {
    "latency_ms": 30.0,
    "mb_per_s": 100.0,
    # Drawn uniformly: quotes, targets and recorded sessions name cells by it.
    "skewed": False,
}
_TIMES: Final = {
    Size.QUICK: {"checkpoint_s": 0.5, "materialize_s": 1.5, "warm_s": 0.5, "seconds": 2.0},
    Size.STANDARD: {"checkpoint_s": 1.0, "materialize_s": 5.0, "warm_s": 1.5, "seconds": 5.0},
    Size.FULL: {"checkpoint_s": 1.0, "materialize_s": 20.0, "warm_s": 5.0, "seconds": 40.0},
}
_DRAWS: Final = {Size.QUICK: 200_000, Size.STANDARD: 2_000_000, Size.FULL: 4_000_000}
_ON_LOCAL, _OFF_LOCAL = f"{ON}-local", f"{OFF}-local"
_PLAIN: Final = (ON, OFF, OFF_RARE)
_ALL: Final = (*_PLAIN, _ON_LOCAL, _OFF_LOCAL)
_STATES: Final[dict[Size, tuple[tuple[int, int, tuple[str, ...]], ...]]] = {
    Size.QUICK: ((200, 50_000, (*_PLAIN, _ON_LOCAL)),),
    # Longer words at one number of keys, then more of them.
    Size.STANDARD: ((16, 50_000, _PLAIN), (200, 300_000, (ON, OFF))),
    Size.FULL: (
        *((16, keys, _ALL) for keys in (50_000, 500_000, 5_000_000)),
        *((200, keys, _ALL) for keys in (50_000, 500_000, 2_000_000)),
    ),
}
"""Length of the words, how many, and the variants."""
_STARTS_S: Final = 1.0
_FILLED_PER_S: Final = 200_000


def cells(size: Size) -> Sequence[Cell]:
    """Length of the keys times size of the state."""
    times, draws = _TIMES[size], _DRAWS[size]
    starts_s = _STARTS_S + draws / 2_000_000 + times["warm_s"] + times["seconds"]
    return [
        Cell(
            {**_COMMON, **times, "draws": draws, "key_bytes": key_bytes, "keys": keys},
            variants,
            starts_s + keys / _FILLED_PER_S,
        )
        for key_bytes, keys, variants in _STATES[size]
    ]


def measure(trial: Trial) -> Reading:
    copies, times = trial.variant in (_ON_LOCAL, _OFF_LOCAL), trial.settings
    spec = spec_of(
        trial,
        changelog=trial.variant in (ON, _ON_LOCAL),
        checkpoint_s=times["materialize_s" if trial.variant == OFF_RARE else "checkpoint_s"],
        copies=str(trial.directory / "copies") if copies else None,
    )
    run = run_trial(spec, lambda stages: word_count(ListSource(stages.read)), trial.directory)
    return Reading(run.figures())


EXPERIMENT: Final = Experiment(
    name="throughput",
    title="Maximum throughput",
    question="What does durability every second cost, by length of keys and size of state?",
    group="embedded",
    cells=cells,
    measure=measure,
    figures=(
        Figure("records_per_s", "records a second", "1/s", "higher"),
        Figure("cpu_us_per_record", "CPU per record", "us"),
        Figure("checkpoints", "completed checkpoints", "", "higher"),
        Figure("checkpoint_p50_ms", "checkpoint, median", "ms"),
        Figure("uploaded_mb_per_s", "uploaded a second", "MB/s"),
        Figure("backpressured_s", "writers waited for uploads", "s"),
        Figure("cores_used", "processors used", "", "neither"),
        Figure("table_mb", "tables", "MB", "neither"),
        Figure("rss_mb", "memory of the process", "MB"),
    ),
    ratios=(
        Ratio(ON, OFF),
        Ratio(ON, OFF_RARE),
        Ratio(_ON_LOCAL, ON),
        Ratio(_ON_LOCAL, _OFF_LOCAL),
        Ratio(_OFF_LOCAL, OFF),
    ),
)
