"""Checkpoints: how long they take, how large they are and what storage they need, at a fixed input
rate.

Invariant: all variants of a pair have the same records at the same times and the same store.
"""

from collections.abc import Sequence
from typing import Any, Final

from tidelog_bench.embedded.checkpoints import MB, checkpoints_of, durations, sizes
from tidelog_bench.embedded.jobs import OFF, ON, ListSource, word_count
from tidelog_bench.embedded.run import run_trial, spec_of
from tidelog_bench.experiment import Cell, Experiment, Figure, Ratio, Reading, Size, Trial
from tidelog_bench.store import daily

_STORE: Final = {"latency_ms": 30.0, "mb_per_s": 50.0}
_TIMES: Final = {
    # The warm-up is longer than a materialization takes to come: the fill's log is then cut.
    Size.QUICK: {"checkpoint_s": 0.4, "materialize_s": 1.5, "warm_s": 1.8, "seconds": 4.0},
    # Two materializations are in the measured time, so the log is seen to be cut.
    Size.STANDARD: {"checkpoint_s": 1.0, "materialize_s": 8.0, "warm_s": 9.0, "seconds": 16.0},
    Size.FULL: {"checkpoint_s": 1.0, "materialize_s": 20.0, "warm_s": 26.0, "seconds": 120.0},
}
_WORDS: Final[dict[Size, dict[int, dict[str, Any]]]] = {
    Size.QUICK: {200: {"keys": 40_000, "rate": 10_000.0}},
    Size.STANDARD: {200: {"keys": 1_000_000, "rate": 30_000.0}},
    Size.FULL: {
        16: {"keys": 5_000_000, "rate": 50_000.0},
        200: {"keys": 2_000_000, "rate": 40_000.0},
    },
}
_STARTS_S: Final = 2.0


def cells(size: Size) -> Sequence[Cell]:
    """The word count with long words and, in full, short ones."""
    times = _TIMES[size]
    starts_s = _STARTS_S + times["warm_s"] + times["seconds"]
    return [
        Cell(
            {**_STORE, **times, "job": "wordcount", "key_bytes": key_bytes, **of},
            (ON, OFF),
            starts_s + of["keys"] / 200_000,
        )
        for key_bytes, of in _WORDS[size].items()
    ]


def measure(trial: Trial) -> Reading:
    of: Any = trial.settings
    # What a run takes, but for a long one, which goes round.
    draws = min(max((of["warm_s"] + of["seconds"]) * of["rate"], 10_000), 4_000_000)
    spec = spec_of(trial, draws=int(draws), changelog=trial.variant == ON)
    run = run_trial(spec, lambda stages: word_count(ListSource(stages.read)), trial.directory)
    found, traffic = checkpoints_of(run), run.traffic
    (_, ended), bill = run.measured, daily(traffic)
    figures = {
        **run.figures(),
        "behind_s": run.stages.lag_s(ended.mark),
        "checkpoints": len(found),
        "stored_mean_mb": traffic.stored_bytes / MB,
        "dollars_per_day": bill.total,
        "dollars_per_day_requests": bill.requests,
    }
    if found:
        figures |= {
            **durations(found),
            **sizes(found),
            "objects_per_checkpoint": len(run.written) / len(found),
            "requests_per_checkpoint": traffic.all_requests / len(found),
        }
    return Reading(figures)


EXPERIMENT: Final = Experiment(
    name="checkpoints",
    title="Checkpoints",
    question="How long does a checkpoint take, and what does it add to the store?",
    group="embedded",
    cells=cells,
    measure=measure,
    figures=(
        Figure("p50_ms", "duration, median", "ms"),
        Figure("p99_ms", "duration, p99", "ms"),
        Figure("incremental_mean_mb", "added, mean", "MB"),
        Figure("full_peak_mb", "full checkpoint, largest", "MB"),
        Figure("dollars_per_day", "S3 bill of a day", "$"),
        Figure("mean_ms", "duration, mean", "ms"),
        Figure("p90_ms", "duration, p90", "ms"),
        Figure("p999_ms", "duration, p99.9", "ms"),
        Figure("max_ms", "duration, longest", "ms"),
        Figure("barrier_p50_ms", "median until all snapshots are taken", "ms"),
        Figure("upload_p50_ms", "median of the upload after the barrier", "ms"),
        Figure("manifest_p50_ms", "median of writing the manifest", "ms"),
        Figure("checkpoints", "completed in the run", "", "higher"),
        Figure("incremental_p50_mb", "added, median", "MB"),
        Figure("incremental_p99_mb", "added, p99", "MB"),
        Figure("incremental_max_mb", "added, most", "MB"),
        Figure("objects_per_checkpoint", "objects written per checkpoint", ""),
        Figure("requests_per_checkpoint", "requests per checkpoint", ""),
        Figure("uploaded_mb_per_s", "uploaded a second", "MB/s"),
        Figure("dollars_per_day_requests", "of the bill for requests", "$"),
        Figure("full_mean_mb", "full checkpoint, mean", "MB"),
        Figure("stored_mean_mb", "stored, mean", "MB"),
        Figure("materializations", "new tables that checkpoints build on", "", "neither"),
        Figure("records_per_s", "records handled", "1/s", "higher"),
        Figure("behind_s", "behind the source at the end", "s"),
        Figure("cpu_us_per_record", "CPU per record", "us"),
    ),
    ratios=(Ratio(ON, OFF),),
)
