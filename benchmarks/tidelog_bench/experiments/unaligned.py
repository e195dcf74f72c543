"""Back-pressure: barriers that wait, that switch after a while, and that always overtake.

Invariant: the variants of a pair differ in nothing but what barriers do.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Any, Final

from tidelog.runtime.config import UnalignedMode
from tidelog.runtime.status.distribution import percentile
from tidelog_bench.embedded.pressure import Completed, Pressed, Pressure, press
from tidelog_bench.experiment import Bars, Distribution, Experiment, Figure, OverTime, Ratio
from tidelog_bench.measurement import Cell, Measurement, Reading, Setting, Size, Trial, downsampled
from tidelog_bench.store.latency import LatencyProfile

_MODES: Final[dict[str, UnalignedMode]] = {
    "aligned": "off",
    "timeout": "timeout",
    "unaligned": "always",
}
_STORE: Final[dict[str, Setting]] = {"latency_ms": 30.0, "mb_per_s": 50.0}
_PRESSED: Final[dict[str, Setting]] = {
    "load": "slow sink",
    "parallelism": 4,
    "channel_buffers": 16,
    "sink_ms": 20.0,
    "timeout_s": 1.0,
    "checkpoint_s": 1.0,
    "warm_s": 6.0,
    "seconds": 15.0,
}
_MANY: Final[dict[str, Setting]] = _PRESSED | {
    "parallelism": 50,
    "channel_buffers": 2,
    "sink_ms": 1.0,
}
_FREE: Final[dict[str, Setting]] = _PRESSED | {
    "load": "none",
    "parallelism": 2,
    "channel_buffers": 2,
    "sink_ms": 0.0,
    "warm_s": 2.0,
    "seconds": 6.0,
}
_CELLS: Final[dict[Size, Sequence[dict[str, Setting]]]] = {
    # Shorter holds and timeouts and fewer buffers: several aligned checkpoints fit some seconds.
    Size.QUICK: (
        _PRESSED
        | {"sink_ms": 5.0, "channel_buffers": 4, "timeout_s": 0.3, "checkpoint_s": 0.5}
        | {"warm_s": 1.5, "seconds": 5.0},
    ),
    Size.STANDARD: (_PRESSED, _FREE),
    Size.FULL: (
        _PRESSED | {"seconds": 60.0},
        _MANY | {"seconds": 60.0},
        _FREE | {"seconds": 30.0},
    ),
}


def cells(size: Size) -> Sequence[Cell]:
    """Under full back-pressure; with more time also without any, and with many subtasks."""
    found: list[Cell] = []
    for load in _CELLS[size]:
        settings: Any = {**_STORE, **load}
        expected = 2.0 + settings["warm_s"] + settings["seconds"]
        found.append(Cell(settings, tuple(_MODES), expected))
    return found


def measure_unaligned(trial: Trial) -> Reading:
    """Run a variant and read its checkpoints."""
    run = trial.read(Pressure, mode=_MODES[trial.variant], link=trial.read(LatencyProfile))
    found = press(run, trial.directory)
    durations = [(c.at_s, c.duration_s * 1e3) for c in found.checkpoints]
    curve = downsampled([(round(at, 3), round(ms, 2)) for at, ms in durations])
    return Reading(_figures(found), {"duration_ms": curve})


def _figures(found: Pressed) -> dict[str, float]:
    seconds = found.end.wall - found.start.wall
    figures = {
        "checkpoints": len(found.checkpoints),
        "checkpoints_per_minute": len(found.checkpoints) / seconds * 60,
        "records_per_s": (found.end.records - found.start.records) / seconds,
    }
    if not found.checkpoints:
        return figures
    durations = [checkpoint.duration_s * 1e3 for checkpoint in found.checkpoints]
    requests = found.traffic.all_requests
    return {
        **figures,
        "p50_ms": percentile(durations, 0.5),
        "p90_ms": percentile(durations, 0.9),
        "p99_ms": percentile(durations, 0.99),
        "max_ms": max(durations),
        "requests_per_checkpoint": requests / len(found.checkpoints),
        **_in_flight(found.checkpoints),
    }


def _in_flight(checkpoints: Sequence[Completed]) -> dict[str, float]:
    """Records that barriers overtook: per checkpoint, the means."""
    held = [
        [state.in_flight for _, state in each.entry.subtasks() if state.in_flight is not None]
        for each in checkpoints
    ]
    objects = [len({part.segment for ref in refs for part in ref.log}) for refs in held]
    delays = [_slowest_delay_ms(each) for each in checkpoints]
    return {
        "unaligned_share": fmean(bool(refs) for refs in held),
        "in_flight_mb": fmean(sum(ref.bytes for ref in refs) for refs in held) / 1e6,
        "in_flight_objects": fmean(objects),
        "in_flight_objects_max": max(objects),
        "start_delay_ms": fmean(delays),
    }


def _slowest_delay_ms(checkpoint: Completed) -> float:
    """How long the first barrier took to the subtask that saw it last."""
    facts = [state.barrier for _, state in checkpoint.entry.subtasks() if state.barrier is not None]
    return max((fact.start_delay_ms for fact in facts), default=0)


MEASUREMENT: Final = Measurement("unaligned", cells, measure_unaligned)

EXPERIMENTS: Final = (
    Experiment(
        name="unaligned",
        title="Checkpoints under back-pressure",
        question="What do barriers that overtake records save, and what do they store for it?",
        group="embedded",
        measurement=MEASUREMENT,
        figures=(
            Figure("checkpoints_per_minute", "completed a minute", "1/min", "higher"),
            Figure("p50_ms", "duration, median", "ms"),
            Figure("p99_ms", "duration, p99", "ms"),
            Figure("in_flight_mb", "in-flight data per checkpoint", "MB"),
            Figure("in_flight_objects", "objects that hold it, per checkpoint", ""),
            Figure("records_per_s", "records handled", "1/s", "higher"),
            Figure("p90_ms", "duration, p90", "ms"),
            Figure("max_ms", "duration, longest", "ms"),
            Figure("start_delay_ms", "until a barrier reached the last subtask", "ms"),
            Figure("unaligned_share", "checkpoints in which barriers overtook", "", "neither"),
            Figure("in_flight_objects_max", "objects of in-flight data, most", ""),
            Figure("requests_per_checkpoint", "requests of all kinds per checkpoint", ""),
            Figure("checkpoints", "completed in the run", "", "higher"),
        ),
        ratios=(Ratio("unaligned", "aligned"), Ratio("timeout", "aligned")),
        plots=(
            OverTime("duration_ms", "Checkpoint duration", "ms", log=True),
            Bars("checkpoints_per_minute", "Completed checkpoints a minute"),
            Distribution(("p50_ms", "p90_ms", "p99_ms", "max_ms"), "Checkpoint duration, ms"),
        ),
    ),
)
