"""Checkpoints: how long they take, how large they are and what storage they need, at a fixed input
rate; and how many there can be.

Invariant: all variants of a pair have the same records at the same times and the same store; tables
are uploaded equally often by `on` and `off-rare`.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from tidelog_bench.embedded.checkpoints import (
    MB,
    checkpoints_of,
    curves,
    durations,
    sizes,
)
from tidelog_bench.embedded.jobs import OFF, OFF_RARE, ON, Load
from tidelog_bench.embedded.run import Run, run_trial
from tidelog_bench.experiment import (
    Bars,
    Cell,
    Experiment,
    Figure,
    OverTime,
    Ratio,
    Reading,
    Setting,
    Size,
    Trial,
)
from tidelog_bench.store.modelled import daily

_STORE: Final = {"latency_ms": 30.0, "mb_per_s": 50.0}
_TIMES: Final[dict[Size, dict[str, Setting]]] = {
    # The warm-up is longer than a materialization takes to come: the fill's log is then cut.
    Size.QUICK: {"checkpoint_s": 0.4, "materialize_s": 1.5, "warm_s": 1.8, "seconds": 4.0},
    # Two materializations are in the measured time, so the log is seen to be cut.
    Size.STANDARD: {"checkpoint_s": 1.0, "materialize_s": 8.0, "warm_s": 9.0, "seconds": 16.0},
    Size.FULL: {"checkpoint_s": 1.0, "materialize_s": 20.0, "warm_s": 26.0, "seconds": 120.0},
}
_WORDS: Final[dict[Size, dict[int, dict[str, Setting]]]] = {
    Size.QUICK: {200: {"keys": 40_000, "rate": 10_000.0}},
    Size.STANDARD: {200: {"keys": 1_000_000, "rate": 30_000.0}},
    Size.FULL: {
        16: {"keys": 5_000_000, "rate": 50_000.0},
        200: {"keys": 2_000_000, "rate": 40_000.0},
    },
}
_WINDOWS: Final[dict[Size, dict[str, Setting]]] = {
    # The state of a window job is full when the warm-up is longer than a window.
    Size.QUICK: {"keys": 2_000, "rate": 400.0, "window_s": 1.5},
    Size.FULL: {"keys": 20_000, "rate": 500.0, "window_s": 60.0, "warm_s": 65.0},
}
_OTHER_LATENCIES_MS: Final = {Size.QUICK: (), Size.STANDARD: (), Size.FULL: (0.0, 100.0)}
"""How much of a store's latency a checkpoint pays is seen with short words."""
_SLIDES: Final = {Size.QUICK: (10,), Size.STANDARD: (), Size.FULL: (10, 5)}
_NON_STOP: Final[dict[Size, dict[str, Setting]]] = {
    Size.QUICK: {"seconds": 3.0},
    Size.FULL: {},
}
_AT_ONCE_S: Final = 0.01
"""As in the published experiments: the next checkpoint is always due."""
_STARTS_S: Final = 2.0


def cells(size: Size) -> Sequence[Cell]:
    """The word count with long words and, in full, short ones with stores of several latencies;
    unless standard, the sliding window, and the same loads with an interval that no checkpoint can
    keep.
    """
    words: list[dict[str, Setting]] = [
        {**_STORE, **_TIMES[size], "job": "wordcount", "key_bytes": key_bytes, **of}
        for key_bytes, of in _WORDS[size].items()
    ]
    windows: list[dict[str, Setting]] = [
        {**_STORE, **_TIMES[size], "job": "window", "slides": slides, **_WINDOWS[size]}
        for slides in _SLIDES[size]
    ]
    slow = [{**words[0], "latency_ms": ms} for ms in _OTHER_LATENCIES_MS[size]]
    counted = {Size.QUICK: words, Size.STANDARD: [], Size.FULL: [*words, *windows]}[size]
    non_stop = [{**each, **_NON_STOP[size], "checkpoint_s": _AT_ONCE_S} for each in counted]
    return [
        *(_cell(each, (ON, OFF, OFF_RARE) if size is Size.FULL else (ON, OFF)) for each in words),
        *(_cell(each, (ON, OFF)) for each in (*windows, *slow, *non_stop)),
    ]


def _cell(settings: dict[str, Any], variants: tuple[str, ...]) -> Cell:
    fill = settings["keys"] / 200_000 if settings["job"] == "wordcount" else 0.0
    expected_s = _STARTS_S + fill + settings["warm_s"] + settings["seconds"]
    return Cell(settings, variants, expected_s)


def measure(trial: Trial) -> Reading:
    """Run a variant and read its checkpoints."""
    load = trial.read(Load)
    run = run_trial(load.spec(trial), load.build, trial.directory, archived=True)
    if load.checkpoint_s == _AT_ONCE_S:
        return Reading(_counts(run))
    return asyncio.run(_read(run))


def _counts(run: Run) -> dict[str, float]:
    """How many checkpoints completed, and what that cost the job."""
    figures, traffic = _load(run), run.traffic
    completed = figures["checkpoints"]
    figures["checkpoints_per_minute"] = completed / traffic.seconds * 60
    if completed:
        figures["requests_per_checkpoint"] = traffic.all_requests / completed
    return figures


def _load(run: Run) -> dict[str, float]:
    names = ("checkpoints", "checkpoints_failed", "records_per_s", "cpu_us_per_record", "rss_mb")
    found, (_, ended) = run.figures(), run.measured
    lag = {"behind_s": run.stages.lag_s(ended.mark)}
    return {name: found[name] for name in names if name in found} | lag


async def _read(run: Run) -> Reading:
    begun, ended = run.measured
    found, traffic = await checkpoints_of(run), run.traffic
    writes = [w for w in run.store.writes if begun.mark.wall <= w.ended <= ended.mark.wall]
    bill = daily(traffic)
    figures = {
        **_load(run),
        "checkpoints": len(found),
        **durations(found),
        **sizes(found),
        "stored_mean_mb": traffic.stored_bytes / MB,
        "uploaded_mb_per_s": traffic.uploaded_bytes / MB / traffic.seconds,
        "dollars_per_day": bill.total,
        "dollars_per_day_requests": bill.requests,
    }
    if found:
        figures["objects_per_checkpoint"] = len(writes) / len(found)
        figures["requests_per_checkpoint"] = traffic.all_requests / len(found)
    return Reading(figures, curves(found), {"table_uploads": ended.uploads - begun.uploads})


EXPERIMENT: Final = Experiment(
    name="checkpoints",
    title="Checkpoints",
    question="How long does a checkpoint take, what does it add to the store, and how many "
    "complete when each begins as soon as the last one is done?",
    group="embedded",
    cells=cells,
    measure=measure,
    figures=(
        Figure("checkpoints_per_minute", "completed a minute", "1/min", "higher"),
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
    main=("checkpoints_per_minute", "p50_ms", "incremental_mean_mb", "full_peak_mb"),
    ratios=(Ratio(ON, OFF), Ratio(ON, OFF_RARE)),
    plots=(
        Bars(("checkpoints_per_minute",), "Completed checkpoints a minute"),
        OverTime("duration_ms", "Checkpoint duration", "ms", log=True),
        Bars(("p50_ms", "p90_ms", "p99_ms", "max_ms"), "Checkpoint duration", log=True),
        OverTime("incremental_mb", "What a checkpoint adds", "MB", log=True),
        OverTime("full_mb", "Full checkpoint size", "MB", also="table_mb"),
        OverTime("log_mb", "Log of a checkpoint", "MB"),
        Bars(("dollars_per_day",), "S3 bill of a day"),
    ),
)
