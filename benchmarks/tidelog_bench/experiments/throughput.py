"""Maximum throughput: the word count as fast as it goes, with the log and without.

Invariant: the variants of a pair differ in nothing but the log, the interval of checkpoints and
the local copies; the store is the same, and wide enough that the processor is what they share.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidelog_bench.embedded.loads import Intervals
from tidelog_bench.embedded.run import measure, spec_of
from tidelog_bench.experiment import Against, Bars, Experiment, Figure, Ratio
from tidelog_bench.measurement import Cell, Measurement, Reading, Size, Trial


@dataclass(frozen=True, slots=True)
class _Variant:
    changelog: bool
    rare: bool = False
    """Checkpoints are as rare as `rare_checkpoint_s` says."""
    copies: bool = False


_VARIANTS: Final = {
    "on": _Variant(True),
    "off": _Variant(False),
    "off-rare": _Variant(False, rare=True),
    "on-local": _Variant(True, copies=True),
    "off-local": _Variant(False, copies=True),
}
_COMMON: Final = {"latency_ms": 30.0, "mb_per_s": 100.0}
_TIMES: Final[dict[Size, dict[str, float]]] = {
    Size.QUICK: {
        "checkpoint_s": 0.5,
        "rare_checkpoint_s": 1.5,
        "materialize_s": 1.5,
        "warm_s": 0.5,
        "seconds": 2.0,
        "draws": 200_000,
    },
    Size.STANDARD: {
        "checkpoint_s": 1.0,
        "rare_checkpoint_s": 5.0,
        "materialize_s": 5.0,
        "warm_s": 2.0,
        "seconds": 10.0,
        "draws": 2_000_000,
    },
    Size.FULL: {
        "checkpoint_s": 1.0,
        "rare_checkpoint_s": 20.0,
        "materialize_s": 20.0,
        "warm_s": 5.0,
        "seconds": 40.0,
        "draws": 4_000_000,
    },
}
_PLAIN: Final = ("on", "off", "off-rare")
_ALL: Final = tuple(_VARIANTS)
_STATES: Final[dict[Size, tuple[tuple[int, int, bool, tuple[str, ...]], ...]]] = {
    Size.QUICK: ((200, 50_000, False, (*_PLAIN, "on-local")),),
    # Longer words at one number of keys, then more of them.
    Size.STANDARD: (
        (16, 50_000, False, _PLAIN),
        (200, 50_000, False, _PLAIN),
        (200, 300_000, False, _ALL),
    ),
    Size.FULL: (
        *((16, keys, False, _ALL) for keys in (50_000, 500_000, 5_000_000)),
        *((200, keys, False, _ALL) for keys in (50_000, 500_000, 2_000_000)),
        (16, 50_000, True, _ALL),
    ),
}
"""Length of the words, how many, whether they are drawn skewed, and the variants."""
_STARTS_S: Final = 2.0
_FILLED_PER_S: Final = 80_000


def cells(size: Size) -> Sequence[Cell]:
    """Length of the keys times size of the state."""
    found = []
    for key_bytes, keys, skewed, variants in _STATES[size]:
        state = {"key_bytes": key_bytes, "keys": keys, "skewed": skewed}
        times = _TIMES[size]
        drawn = times["draws"] / 2_000_000 + keys / _FILLED_PER_S
        expected_s = _STARTS_S + drawn + times["warm_s"] + times["seconds"]
        found.append(Cell({**_COMMON, **times, **state}, variants, expected_s))
    return found


def measure_throughput(trial: Trial) -> Reading:
    """Run a variant without a limit of its rate."""
    variant, times = _VARIANTS[trial.variant], trial.read(Intervals)
    spec = spec_of(
        trial,
        changelog=variant.changelog,
        checkpoint_s=times.rare_checkpoint_s if variant.rare else times.checkpoint_s,
        in_memory_store=True,
        copies=str(trial.directory / "copies") if variant.copies else None,
    )
    found = measure(spec, room=trial.directory)
    figures = {name: found[name] for name in _FIGURES if name in found}
    return Reading(figures, notes={"table_uploads": found["snapshots"]})


_FIGURES: Final[tuple[str, ...]] = (
    "records_per_s",
    "cpu_us_per_record",
    "cores_used",
    "backpressured_s",
    "table_mb",
    "rss_mb",
    "uploaded_mb_per_s",
    "checkpoints",
    "checkpoint_p50_ms",
    "checkpoints_failed",
)

EXPERIMENTS: Final = (
    Experiment(
        name="throughput",
        title="Maximum throughput",
        question="What does durability every second cost, by length of keys and size of state?",
        group="embedded",
        measurement=Measurement("throughput", cells, measure_throughput),
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
            Ratio("on", "off"),
            Ratio("on", "off-rare"),
            Ratio("on-local", "on"),
            Ratio("on-local", "off-local"),
            Ratio("off-local", "off"),
        ),
        plots=(
            Bars("records_per_s", "Records a second"),
            Against("records_per_s", "keys", "Records a second by number of keys", log_x=True),
            Bars("cpu_us_per_record", "CPU per record, us"),
        ),
    ),
)
