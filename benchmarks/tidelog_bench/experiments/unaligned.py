"""Back-pressure: barriers that wait, that switch after a while, and that always overtake.

Invariants: the variants of a pair differ in nothing but what barriers do; the sink holds the whole
process for each buffer, so every channel before it is full.
"""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any, Final

from tidelog.checkpoint.config import CheckpointConfig
from tidelog.connectors.program import RateSource
from tidelog.runtime.config import UnalignedConfig, UnalignedMode
from tidelog.runtime.graph import Job
from tidelog.runtime.status.observe import status_of
from tidelog_bench.embedded.checkpoints import Completed, checkpoints_of, durations
from tidelog_bench.embedded.jobs import NullSink
from tidelog_bench.embedded.meter import CLOCK, Mark
from tidelog_bench.embedded.run import Run, run_trial, spec_of
from tidelog_bench.experiment import Cell, Experiment, Figure, Ratio, Reading, Size, Trial

_MODES: Final[dict[str, UnalignedMode]] = {
    "aligned": "off",
    "timeout": "timeout",
    "unaligned": "always",
}
_STORE: Final[dict[str, Any]] = {"latency_ms": 30.0, "mb_per_s": 50.0}
_PRESSED: Final[dict[str, Any]] = {
    "load": "slow sink",
    "parallelism": 4,
    "channel_buffers": 16,
    "sink_ms": 20.0,
    "timeout_s": 1.0,
    "checkpoint_s": 1.0,
    "warm_s": 6.0,
}
_MANY: Final = {"parallelism": 50, "channel_buffers": 2, "sink_ms": 1.0}
_FREE: Final = {"load": "none", "parallelism": 2, "channel_buffers": 2, "sink_ms": 0.0}
_CELLS: Final = {
    # Shorter holds and timeouts and fewer buffers: several aligned checkpoints fit some seconds.
    Size.QUICK: (
        _PRESSED
        | {"sink_ms": 5.0, "channel_buffers": 4, "timeout_s": 0.3, "checkpoint_s": 0.5}
        | {"warm_s": 1.5, "seconds": 5.0},
    ),
    Size.STANDARD: (_PRESSED | {"warm_s": 3.0, "seconds": 8.0},),
    Size.FULL: (
        _PRESSED | {"seconds": 60.0},
        _PRESSED | _MANY | {"seconds": 60.0},
        _PRESSED | _FREE | {"warm_s": 2.0, "seconds": 30.0},
    ),
}
_KEYS: Final = 50_000
_NEVER_S: Final = 1e6
_ALL: Final = 1_000_000


def cells(size: Size) -> Sequence[Cell]:
    """Under full back-pressure; with more time also without any, and with many subtasks."""
    return [
        Cell(_STORE | load, tuple(_MODES), 2.0 + load["warm_s"] + load["seconds"])
        for load in _CELLS[size]
    ]


def _words(numbers: Iterable[int]) -> list[str]:
    return [f"word-{number * 7919 % _KEYS}" for number in numbers]


def _job(parallelism: int, sink_ms: float) -> Job:
    """Records go by key to an operator whose sink holds each buffer for so long, or are counted
    where it does not.
    """
    job = Job("pressure")
    words = job.source(RateSource(None, splits=parallelism)).map_batches(_words)
    keyed = words.key_by(lambda word: word)
    counted = keyed.map(len) if sink_ms else keyed.aggregate(lambda _: 1, int.__add__)
    counted.sink(NullSink(sink_ms / 1e3))
    return job


def measure(trial: Trial) -> Reading:
    of: Any = trial.settings
    options = {
        "channel_buffers": of["channel_buffers"],
        "checkpoint": CheckpointConfig(interval=of["checkpoint_s"], timeout=_NEVER_S),
        "unaligned": UnalignedConfig(_MODES[trial.variant], of["timeout_s"]),
    }
    spec = spec_of(trial, keys=0, draws=0, retain=_ALL, options=options)

    async def watch(run: Run) -> None:
        """Begin and end the measured time by the clock: the sources know of no stages."""
        await CLOCK.sleep(spec.warm_s)
        run.begin(Mark.now(status_of(run.runner).records_read))
        await CLOCK.sleep(spec.seconds)
        run.end(Mark.now(status_of(run.runner).records_read))

    job = _job(spec.parallelism, of["sink_ms"])
    run = run_trial(spec, lambda stages: job, trial.directory, watch=watch)
    found = checkpoints_of(run)
    figures = {
        "checkpoints": len(found),
        "checkpoints_per_minute": len(found) / run.traffic.seconds * 60,
        "records_per_s": run.figures()["records_per_s"],
    }
    if found:
        figures |= {
            **durations(found),
            "requests_per_checkpoint": run.traffic.all_requests / len(found),
            **_in_flight(found),
        }
    return Reading(figures)


def _in_flight(checkpoints: Sequence[Completed]) -> dict[str, float]:
    """Records that barriers overtook: per checkpoint, the means."""
    held = [
        [state.in_flight for _, state in each.entry.subtasks() if state.in_flight is not None]
        for each in checkpoints
    ]
    objects = [len({part.segment for ref in refs for part in ref.log}) for refs in held]
    return {
        "unaligned_share": fmean(bool(refs) for refs in held),
        "in_flight_mb": fmean(sum(ref.bytes for ref in refs) for refs in held) / 1e6,
        "in_flight_objects": fmean(objects),
        "in_flight_objects_max": max(objects),
        "start_delay_ms": fmean(each.barrier_delay_s for each in checkpoints) * 1e3,
    }


EXPERIMENT: Final = Experiment(
    name="unaligned",
    title="Checkpoints under back-pressure",
    question="What do barriers that overtake records save, and what do they store for it?",
    group="embedded",
    cells=cells,
    measure=measure,
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
)
