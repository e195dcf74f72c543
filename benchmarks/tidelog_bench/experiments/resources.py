"""Resources: processor, network and disk over time, at a fixed input rate.

Invariant: all variants have the same records at the same times and the same store; tables are
uploaded equally often by `on` and `off-rare`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from tidelog.runtime.status.distribution import percentile
from tidelog_bench.embedded.loads import OFF, OFF_RARE, ON, interval_spec, measure_load
from tidelog_bench.embedded.meter import CLOCK
from tidelog_bench.embedded.running import Running, materializations
from tidelog_bench.embedded.sampler import Sample, Sampler, mean, per_second
from tidelog_bench.experiment import Bars, Experiment, Figure, OverTime, Ratio
from tidelog_bench.measurement import (
    Cell,
    Measurement,
    Points,
    Reading,
    Setting,
    Size,
    Trial,
    downsampled,
)
from tidelog_bench.store.pricing import daily

_MB: Final = 1e6
_USES: Final[dict[str, tuple[str, Callable[[Sample], float]]]] = {
    "cpu": ("cores", lambda sample: sample.cpu_s),
    "wire": ("mb_per_s", lambda sample: sample.wire_bytes / _MB),
    "disk_written": ("mb_per_s", lambda sample: sample.written_bytes / _MB),
    "disk_read": ("mb_per_s", lambda sample: sample.read_bytes / _MB),
}
_STORE: Final[dict[str, Setting]] = {"latency_ms": 30.0, "mb_per_s": 50.0, "job": "wordcount"}
_TIMES: Final[dict[Size, dict[str, Setting]]] = {
    # The long interval fits the measured time twice at least, so its peaks are in it.
    Size.QUICK: {
        "checkpoint_s": 0.3,
        "rare_checkpoint_s": 1.5,
        "warm_s": 1.5,
        "seconds": 3.5,
        "step_s": 0.5,
    },
    Size.STANDARD: {
        "checkpoint_s": 1.0,
        "rare_checkpoint_s": 6.0,
        "warm_s": 6.5,
        "seconds": 13.0,
        "step_s": 0.5,
    },
    Size.FULL: {
        "checkpoint_s": 1.0,
        "rare_checkpoint_s": 30.0,
        "warm_s": 31.0,
        "seconds": 150.0,
        "step_s": 1.0,
    },
}
_WORDS: Final[dict[Size, Sequence[dict[str, Setting]]]] = {
    Size.QUICK: ({"key_bytes": 200, "keys": 40_000, "rate": 10_000.0},),
    Size.STANDARD: ({"key_bytes": 200, "keys": 400_000, "rate": 30_000.0},),
    Size.FULL: (
        {"key_bytes": 16, "keys": 5_000_000, "rate": 50_000.0},
        {"key_bytes": 200, "keys": 2_000_000, "rate": 40_000.0},
    ),
}


def cells(size: Size) -> Sequence[Cell]:
    """The word count; long words, for whose tables much is moved."""
    found: list[Cell] = []
    for words in _WORDS[size]:
        times: Any = _TIMES[size]
        settings: Any = {**_STORE, **times, **words}
        expected = 2.0 + settings["keys"] / 100_000 + times["warm_s"] + times["seconds"]
        found.append(Cell(settings, (ON, OFF, OFF_RARE), expected))
    return found


@dataclass(frozen=True, slots=True)
class _Step:
    step_s: float
    """Seconds between two points of the curves."""


def measure_resources(trial: Trial) -> Reading:
    """Run a variant with a sampler beside it."""
    samples: list[Sample] = []

    async def watch(running: Running) -> None:
        while running.stages.start is None:
            await CLOCK.sleep(0.005)
        sampler = Sampler(running.store.model)
        sampler.start()
        try:
            while running.stages.end is None:
                await CLOCK.sleep(0.005)
        finally:
            sampler.stop()
            samples.extend(sampler.samples)

    async def read(running: Running) -> Reading:
        return _read(running, samples, trial.read(_Step).step_s)

    return measure_load(trial, interval_spec(trial), read, ("records_per_s",), watch)


def _read(running: Running, samples: Sequence[Sample], step_s: float) -> Reading:
    stages, incarnation, traffic = running.stages, running.runner.incarnation, running.traffic
    assert stages.end is not None and incarnation is not None and traffic is not None
    driver = incarnation.driver
    samples = [sample for sample in samples if sample.at <= stages.end.wall + step_s]
    figures: dict[str, float] = {}
    series: dict[str, Points] = {}
    for name, (unit, of) in _USES.items():
        curve = per_second(samples, of, step_s)
        average = mean(samples, of)
        # The last bit of the time belongs to no step, so the mean of all may exceed every step.
        peak = max([average, *(rate for _, rate in curve)])
        figures[f"{name}_mean_{unit}"] = average
        figures[f"{name}_peak_{unit}"] = peak
        if average:
            figures[f"{name}_peak_over_mean"] = peak / average
        series[f"{name}_{unit}"] = downsampled([(round(at, 3), round(v, 4)) for at, v in curve])
    durations = driver.metrics.durations_s[running.started_checkpoints :]
    figures |= {
        "checkpoints_per_minute": len(durations) / traffic.seconds * 60,
        "requests_per_s": traffic.all_requests / traffic.seconds,
        "dollars_per_day": daily(traffic).total,
        "behind_s": stages.behind_s(stages.end),
    }
    if durations:
        figures["checkpoint_mean_ms"] = fmean(durations) * 1e3
        figures["checkpoint_p99_ms"] = round(percentile(durations, 0.99) * 1e3, 1)
    uploads = materializations(running.runner) - running.started_materializations
    return Reading(figures, series, {"table_uploads": uploads})


MEASUREMENT: Final = Measurement("resources", cells, measure_resources)

EXPERIMENTS: Final = (
    Experiment(
        name="resources",
        title="Processor, network and disk",
        question="What do short checkpoint intervals cost, and how even is the load?",
        group="embedded",
        measurement=MEASUREMENT,
        figures=(
            Figure("cpu_mean_cores", "processor, mean", "cores"),
            Figure("cpu_peak_over_mean", "processor, peak over mean", ""),
            Figure("wire_mean_mb_per_s", "network, mean", "MB/s"),
            Figure("wire_peak_over_mean", "network, peak over mean", ""),
            Figure("disk_written_mean_mb_per_s", "written to local disk, mean", "MB/s"),
            Figure("disk_written_peak_over_mean", "written to local disk, peak over mean", ""),
            Figure("cpu_peak_cores", "processor, peak", "cores"),
            Figure("wire_peak_mb_per_s", "network, peak", "MB/s"),
            Figure("disk_written_peak_mb_per_s", "written to local disk, peak", "MB/s"),
            Figure("disk_read_mean_mb_per_s", "read from local disk and its cache, mean", "MB/s"),
            Figure("requests_per_s", "requests to the store", "1/s"),
            Figure("dollars_per_day", "S3 bill of a day", "$"),
            Figure("checkpoints_per_minute", "checkpoints completed a minute", "1/min", "higher"),
            Figure("checkpoint_mean_ms", "checkpoint duration, mean", "ms"),
            Figure("checkpoint_p99_ms", "checkpoint duration, p99", "ms"),
            Figure("behind_s", "behind the source at the end", "s"),
            Figure("records_per_s", "records handled", "1/s", "higher"),
        ),
        ratios=(Ratio(ON, OFF_RARE), Ratio(ON, OFF)),
        plots=(
            OverTime("cpu_cores", "Processor", "cores"),
            OverTime("wire_mb_per_s", "Network", "MB/s"),
            OverTime("disk_written_mb_per_s", "Written to local disk", "MB/s"),
            Bars("wire_peak_over_mean", "Network: peak over mean"),
        ),
    ),
)
