"""Checkpoints: how long, how large, and what storage they need, at a fixed input rate; and how many
there can be.

Invariant: both variants of a pair have the same records at the same times, the same store and the
same interval; only whether a checkpoint is log or table files differs.
"""

from collections.abc import Mapping
from typing import Final

from tidelog_bench.embedded import checkpoint_figures
from tidelog_bench.embedded.checkpoint_figures import MB
from tidelog_bench.embedded.checkpoints import taken
from tidelog_bench.embedded.loads import cells, load_spec, measure_load, non_stop_cells
from tidelog_bench.embedded.predictions import predictions
from tidelog_bench.embedded.run import RunSpec
from tidelog_bench.embedded.running import Running, stored_over_time
from tidelog_bench.experiment import Bars, Distribution, Experiment, Figure, OverTime, Ratio
from tidelog_bench.measurement import Measurement, Points, Reading, Trial, downsampled
from tidelog_bench.store.pricing import daily

_GENERAL: Final = (
    "records_per_s",
    "cpu_us_per_record",
    "cores_used",
    "checkpoints_failed",
    "rss_mb",
)


def measure_checkpoints(trial: Trial) -> Reading:
    """Run a variant and read its checkpoints."""
    spec = load_spec(trial)
    return measure_load(trial, spec, lambda running: _read(spec, running), _GENERAL)


async def _read(spec: RunSpec, running: Running) -> Reading:
    start, end = running.stages.start, running.stages.end
    assert start is not None and end is not None
    seconds = end.wall - start.wall
    found = await taken(running)
    writes = [w for w in running.store.writes if start.wall <= w.ended <= end.wall]
    traffic = running.traffic
    assert traffic is not None
    bill = daily(traffic)
    stored = stored_over_time(running)
    predicted = await predictions(spec, running, found)
    figures = {
        **checkpoint_figures.counts(found, seconds),
        **checkpoint_figures.durations(found),
        **checkpoint_figures.sizes(found),
        **predicted,
        "stored_peak_mb": max(size for _, size in stored) / MB,
        "stored_mean_mb": traffic.stored_bytes / MB,
        "uploaded_mb_per_s": traffic.uploaded_bytes / MB / seconds,
        "dollars_per_day": bill.total,
        "dollars_per_day_requests": bill.requests,
        "behind_s": running.stages.behind_s(end),
    }
    if found:
        figures["objects_per_checkpoint"] = len(writes) / len(found)
        figures["requests_per_checkpoint"] = traffic.all_requests / len(found)
    series = {
        **checkpoint_figures.curves(found),
        **_flat(figures, seconds),
        "stored_mb": downsampled([(round(at, 3), size / MB) for at, size in stored]),
    }
    return Reading(figures, series, {"slowest": checkpoint_figures.slowest(found)})


def _flat(figures: Mapping[str, float], seconds: float) -> dict[str, Points]:
    """The predicted peak of the log as a line over the measured time."""
    if "predicted_peak_mb" not in figures:
        return {}
    level = figures["predicted_peak_mb"]
    return {"predicted_peak_mb": [(0.0, level), (round(seconds, 3), level)]}


MEASUREMENT: Final = Measurement("checkpoints", cells, measure_checkpoints)
_NON_STOP: Final = Measurement("checkpoints-non-stop", non_stop_cells, measure_checkpoints)
_RATIOS: Final = (Ratio("on", "off"),)
_LOAD: Final = (
    Figure("records_per_s", "records handled", "1/s", "higher"),
    Figure("behind_s", "behind the source at the end", "s"),
    Figure("cpu_us_per_record", "CPU per record", "us"),
)

EXPERIMENTS: Final = (
    Experiment(
        name="checkpoint-count",
        title="Completed checkpoints",
        question="How many checkpoints complete when each begins as soon as the last one is done?",
        group="embedded",
        measurement=_NON_STOP,
        figures=(
            Figure("checkpoints_per_minute", "completed a minute", "1/min", "higher"),
            Figure("checkpoints", "completed in the run", "", "higher"),
            Figure("requests_per_checkpoint", "requests per checkpoint", ""),
            *_LOAD,
        ),
        ratios=_RATIOS,
        plots=(Bars("checkpoints_per_minute", "Completed checkpoints a minute"),),
    ),
    Experiment(
        name="checkpoint-duration",
        title="Checkpoint duration",
        question="How long does a checkpoint take, and how steady is that while tables move?",
        group="embedded",
        measurement=MEASUREMENT,
        figures=(
            Figure("p50_ms", "median", "ms"),
            Figure("p99_ms", "p99", "ms"),
            Figure("mean_ms", "mean", "ms"),
            Figure("p90_ms", "p90", "ms"),
            Figure("p999_ms", "p99.9", "ms"),
            Figure("max_ms", "longest", "ms"),
            Figure("barrier_p50_ms", "median until all snapshots are taken", "ms"),
            Figure("upload_p50_ms", "median of the upload behind the barrier", "ms"),
            Figure("manifest_p50_ms", "median of writing the manifest", "ms"),
            Figure("checkpoints", "completed in the run", "", "higher"),
            *_LOAD,
        ),
        ratios=_RATIOS,
        plots=(
            OverTime("duration_ms", "Checkpoint duration", "ms", log=True),
            Distribution(
                ("mean_ms", "p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms"),
                "Checkpoint duration, ms",
            ),
        ),
    ),
    Experiment(
        name="checkpoint-size",
        title="Incremental checkpoint size",
        question="How much does a checkpoint add to the store, and in how many objects?",
        group="embedded",
        measurement=MEASUREMENT,
        figures=(
            Figure("incremental_mean_mb", "added, mean", "MB"),
            Figure("incremental_p99_mb", "added, p99", "MB"),
            Figure("objects_per_checkpoint", "objects written per checkpoint", ""),
            Figure("uploaded_mb_per_s", "uploaded a second", "MB/s"),
            Figure("dollars_per_day", "S3 bill of a day", "$"),
            Figure("incremental_p50_mb", "added, median", "MB"),
            Figure("incremental_max_mb", "added, most", "MB"),
            Figure("requests_per_checkpoint", "requests per checkpoint", ""),
            Figure("dollars_per_day_requests", "of it for requests", "$"),
        ),
        ratios=_RATIOS,
        plots=(
            OverTime("incremental_mb", "What a checkpoint adds", "MB", log=True),
            Bars("incremental_mean_mb", "What a checkpoint adds, mean, MB", log=True),
        ),
    ),
    Experiment(
        name="overhead",
        title="Storage overhead",
        question="What does the log add to what is stored, and do the formulas predict its peak?",
        group="embedded",
        measurement=MEASUREMENT,
        figures=(
            Figure("full_peak_mb", "full checkpoint, largest", "MB"),
            Figure("full_mean_mb", "full checkpoint, mean", "MB"),
            Figure("log_interval_peak_mb", "log before it is cut", "MB"),
            Figure("predicted_peak_mb", "the same, predicted", "MB", "neither"),
            Figure("predicted_over_measured", "predicted / measured", "", "neither"),
            Figure("stored_mean_mb", "stored, mean", "MB"),
            Figure("stored_peak_mb", "stored, most", "MB"),
            Figure("log_stored_peak_mb", "log stored, most", "MB"),
            Figure("estimated_log_stored_peak_mb", "log stored, estimated", "MB", "neither"),
            Figure("materializations", "new tables that checkpoints build on", "", "neither"),
            Figure("estimated_checkpoint_ms", "checkpoint, estimated", "ms", "neither"),
        ),
        ratios=_RATIOS,
        plots=(
            OverTime("full_mb", "Full checkpoint size, its table dotted", "MB", also=("table_mb",)),
            OverTime("log_mb", "Log of a checkpoint", "MB", also=("predicted_peak_mb",)),
            OverTime("stored_mb", "All that is stored", "MB"),
        ),
    ),
)
