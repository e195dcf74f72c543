"""Failure: what is done again, how long the job is down, and when it has caught up.

Invariant: the variants of a pair fail at the same share of the time between two checkpoints, drawn
from the seed, with the same records due at the same rate before, meanwhile and after.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any, Final

from tidelog_bench.embedded.jobs import PAYLOAD_BYTES
from tidelog_bench.embedded.loads import OFF, OFF_RARE, ON, Load, interval_spec, job_of
from tidelog_bench.embedded.restarting import Restart, restart
from tidelog_bench.experiment import Bars, Experiment, Figure, OverTime, Ratio
from tidelog_bench.measurement import Cell, Measurement, Reading, Setting, Size, Trial, downsampled

LEAD_S: Final = 2.0
"""The curve begins so long before the failure."""
_STORE: Final[dict[str, Setting]] = {"latency_ms": 30.0, "mb_per_s": 50.0}
_TIMES: Final[dict[Size, dict[str, Setting]]] = {
    Size.QUICK: {"checkpoint_s": 0.3, "rare_checkpoint_s": 1.5, "warm_s": 1.0, "limit_s": 6.0},
    Size.STANDARD: {"checkpoint_s": 1.0, "rare_checkpoint_s": 6.0, "warm_s": 6.5, "limit_s": 45.0},
    Size.FULL: {"checkpoint_s": 1.0, "rare_checkpoint_s": 30.0, "warm_s": 31.0, "limit_s": 300.0},
}
_LONG: Final[dict[str, Setting]] = {"job": "wordcount", "key_bytes": 200}
_JOBS: Final[dict[Size, Sequence[dict[str, Setting]]]] = {
    Size.QUICK: (_LONG | {"keys": 30_000, "rate": 8_000.0},),
    Size.STANDARD: (_LONG | {"keys": 300_000, "rate": 20_000.0},),
    Size.FULL: (
        {"job": "wordcount", "key_bytes": 16, "keys": 5_000_000, "rate": 50_000.0},
        _LONG | {"keys": 2_000_000, "rate": 40_000.0},
        {"job": "window", "slides": 10, "keys": 20_000, "rate": 500.0, "window_s": 60.0},
        {"job": "window", "slides": 5, "keys": 20_000, "rate": 500.0, "window_s": 60.0},
    ),
}
_REST_S: Final = 0.5


def cells(size: Size) -> Sequence[Cell]:
    """The word count; in full also the sliding windows."""
    return [
        Cell({**_STORE, **_TIMES[size], **job}, (ON, OFF, OFF_RARE), _expected_s(size, job))
        for job in _JOBS[size]
    ]


def _expected_s(size: Size, job: dict[str, Any]) -> float:
    times: Any = _TIMES[size]
    fill = job["keys"] / 80_000 if job["job"] == "wordcount" else 0.0
    return float(4.0 + fill + times["warm_s"] + times["rare_checkpoint_s"])


@dataclass(frozen=True, slots=True)
class _Settings:
    rate: float
    warm_s: float
    limit_s: float
    rare_checkpoint_s: float
    key_bytes: int = 16 + PAYLOAD_BYTES


def measure_replay(trial: Trial) -> Reading:
    """Run a variant until it fails, and its restart until it has caught up."""
    settings = trial.read(_Settings)
    # Of the words to be drawn: as many as come until the failure and a little after it.
    seconds = 3 * settings.rare_checkpoint_s
    found = asyncio.run(
        restart(
            interval_spec(trial, seconds=seconds),
            job_of(trial.read(Load, seconds=seconds)),
            trial.directory,
            warm_s=settings.warm_s,
            limit_s=settings.limit_s,
            rest_s=_REST_S,
        )
    )
    return _read(found, settings.rate, settings.key_bytes)


def _read(found: Restart, rate: float, record_bytes: int) -> Reading:
    stages, first, second = found.stages, found.first.incarnation, found.second.incarnation
    failed, resumed = stages.failed, stages.resumed
    assert failed is not None and resumed is not None and found.up is not None
    assert first is not None and second is not None and found.asked is not None
    driver, progress = first.driver, second.deployment.states.progress
    again = failed.records - resumed.records
    durations = driver.metrics.durations_s
    filled = stages.filled.wall if stages.filled is not None else 0.0
    gaps = [end - start for start, end in pairwise(found.completions) if end >= filled]
    curve = stages.lag_s(failed.wall - LEAD_S)
    before, after = found.asked
    figures = {
        "reprocessed_records": again,
        "reprocessed_mb": again * record_bytes / 1e6,
        "reprocessed_s": again / rate,
        "down_s": found.up.wall - failed.wall,
        "stopped_s": found.stopped - failed.wall,
        "restore_s": progress.seconds or 0.0,
        "replayed_changes": progress.changes,
        "downloaded_mb": (after.downloaded_bytes - before.downloaded_bytes) / 1e6,
        "behind_peak_s": max(lag for _, lag in curve),
        "behind_before_s": stages.behind_s(failed),
        "checkpoint_period_s": fmean(gaps),
        "checkpoint_mean_ms": fmean(durations) * 1e3,
    }
    if stages.caught_up is not None:
        figures["caught_up_s"] = stages.caught_up.wall - failed.wall
    series = {"behind_s": downsampled([(round(at, 3), round(lag, 4)) for at, lag in curve])}
    notes = {
        "moment": round(found.moment, 3),
        "failed_at_s": LEAD_S,
        "caught_up": stages.caught_up is not None,
    }
    return Reading(figures, series, notes)


MEASUREMENT: Final = Measurement("replay", cells, measure_replay)

EXPERIMENTS: Final = (
    Experiment(
        name="replay",
        title="Failure and replay",
        question="After a failure, how much is done again, and when has the job caught up?",
        group="embedded",
        measurement=MEASUREMENT,
        figures=(
            Figure("caught_up_s", "from the failure until caught up", "s"),
            Figure("reprocessed_mb", "input handled again", "MB"),
            Figure("reprocessed_records", "records handled again", ""),
            Figure("down_s", "from the failure until the job runs again", "s"),
            Figure("restore_s", "state restored", "s"),
            Figure("behind_peak_s", "behind the source, most", "s"),
            Figure("reprocessed_s", "age of the checkpoint's input at the failure", "s"),
            Figure("stopped_s", "from the failure until all has stopped", "s"),
            Figure("downloaded_mb", "downloaded by the restart", "MB"),
            Figure("replayed_changes", "changes replayed from the log", "", "neither"),
            Figure("checkpoint_period_s", "time between checkpoints, as held", "s"),
            Figure("checkpoint_mean_ms", "checkpoint duration, mean", "ms"),
            Figure("behind_before_s", "behind the source at the failure", "s"),
        ),
        ratios=(Ratio(ON, OFF_RARE), Ratio(ON, OFF)),
        plots=(
            OverTime("behind_s", "Behind the source; the failure is at 2 s", "s"),
            Bars("caught_up_s", "From the failure until caught up, s"),
            Bars("reprocessed_mb", "Input handled again, MB"),
        ),
    ),
)
