"""Checkpoints behind stores of different latency, at a fixed input rate.

Invariant: the cells of one size differ in the store's latency, and in FULL in the length of the
words, alone; both variants of a pair have the same records, and a store with the same latencies.
"""

from collections.abc import Sequence
from typing import Final

from tidelog_bench.embedded import checkpoint_figures
from tidelog_bench.embedded.checkpoints import taken
from tidelog_bench.embedded.loads import load_spec, measure_load
from tidelog_bench.embedded.running import Running
from tidelog_bench.experiment import Against, Experiment, Figure, OverTime, Ratio
from tidelog_bench.measurement import Cell, Measurement, Reading, Setting, Size, Trial

_LATENCIES_MS: Final = {
    Size.QUICK: (0.0, 100.0),
    Size.STANDARD: (0.0, 30.0, 100.0),
    Size.FULL: (0.0, 10.0, 30.0, 100.0),
}
_KEY_BYTES: Final = {Size.QUICK: (16,), Size.STANDARD: (16,), Size.FULL: (16, 200)}
_LOAD: Final[dict[Size, dict[str, float]]] = {
    Size.QUICK: {
        **{"keys": 30_000, "rate": 10_000.0, "checkpoint_s": 0.25, "materialize_s": 1.0},
        **{"warm_s": 0.5, "seconds": 2.5},
    },
    Size.STANDARD: {
        **{"keys": 200_000, "rate": 40_000.0, "checkpoint_s": 0.5, "materialize_s": 3.0},
        **{"warm_s": 1.5, "seconds": 6.0},
    },
    Size.FULL: {
        **{"keys": 1_000_000, "rate": 40_000.0, "checkpoint_s": 1.0, "materialize_s": 15.0},
        **{"warm_s": 10.0, "seconds": 45.0},
    },
}
_FIXED: Final[dict[str, Setting]] = {"job": "wordcount", "mb_per_s": 50.0}
_STARTS_S: Final = 2.0


def cells(size: Size) -> Sequence[Cell]:
    """A cell per latency and length of the words."""
    load = _LOAD[size]
    expected = _STARTS_S + load["keys"] / 100_000 + load["warm_s"] + load["seconds"]
    return [
        Cell(
            {**_FIXED, **load, "latency_ms": latency_ms, "key_bytes": key_bytes},
            ("on", "off"),
            expected,
        )
        for key_bytes in _KEY_BYTES[size]
        for latency_ms in _LATENCIES_MS[size]
    ]


def measure_latency(trial: Trial) -> Reading:
    """Run a variant and read its checkpoints."""
    general = ("records_per_s", "cores_used", "checkpoints_failed")
    return measure_load(trial, load_spec(trial), _read, general)


async def _read(running: Running) -> Reading:
    start, end, traffic = running.stages.start, running.stages.end, running.traffic
    assert start is not None and end is not None and traffic is not None
    checkpoints = await taken(running)
    figures = {
        **checkpoint_figures.counts(checkpoints, traffic.seconds),
        **checkpoint_figures.durations(checkpoints),
        "behind_s": running.stages.behind_s(end),
        "requests": traffic.all_requests,
    }
    if checkpoints:
        objects = [w for w in running.store.writes if start.wall <= w.ended <= end.wall]
        figures["requests_per_checkpoint"] = traffic.all_requests / len(checkpoints)
        figures["objects_per_checkpoint"] = len(objects) / len(checkpoints)
    curve = checkpoint_figures.curves(checkpoints).get("duration_ms", [])
    notes = {"slowest": checkpoint_figures.slowest(checkpoints)}
    return Reading(figures, {"duration_ms": curve}, notes)


MEASUREMENT: Final = Measurement("store-latency", cells, measure_latency)

EXPERIMENTS: Final = (
    Experiment(
        name="store-latency",
        title="Latency of the store",
        question="How much of the store's latency does a checkpoint pay?",
        group="embedded",
        measurement=MEASUREMENT,
        figures=(
            Figure("p50_ms", "checkpoint, median", "ms"),
            Figure("p99_ms", "checkpoint, p99", "ms"),
            Figure("checkpoints", "completed in the run", "", "higher"),
            Figure("records_per_s", "records handled", "1/s", "higher"),
            Figure("behind_s", "behind the source at the end", "s"),
            Figure("requests_per_checkpoint", "requests per checkpoint", ""),
            Figure("objects_per_checkpoint", "objects per checkpoint", ""),
            Figure("upload_p50_ms", "median of the upload behind the barrier", "ms"),
            Figure("manifest_p50_ms", "median of writing the manifest", "ms"),
        ),
        ratios=(Ratio("on", "off"),),
        plots=(
            Against("p50_ms", "latency_ms", "Median checkpoint, ms, by latency of a PUT, ms"),
            Against("p99_ms", "latency_ms", "p99 of checkpoints, ms, by latency of a PUT, ms"),
            Against("checkpoints", "latency_ms", "Completed checkpoints, by latency of a PUT, ms"),
            OverTime("duration_ms", "Checkpoint duration", "ms", log=True),
        ),
    ),
)
