"""Whether the write buffer pays: the word count with its log, against direct updates of RocksDB.

Invariant: all variants count the same words in the same buffers; `direct` and `bare` make nothing
durable.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tidelog.bench.embedded.cells import number, settings_of, workload_of
from tidelog.bench.embedded.direct import DirectCounts
from tidelog.bench.embedded.jobs import direct_count
from tidelog.bench.embedded.meter import rates
from tidelog.bench.embedded.run import RunSpec, measure
from tidelog.bench.embedded.stages import Stages
from tidelog.bench.embedded.workload import WORKLOADS, Workload
from tidelog.bench.experiment import Bars, Experiment, Figure, Ratio
from tidelog.bench.measurement import Cell, Measurement, Reading, Setting, Size, Trial

VARIANTS: Final = ("tidelog", "direct", "bare")
FIGURES: Final = ("records", "records_per_s", "cpu_us_per_record", "cores_used")
_START_S: Final = 3.0
"""Of a process that draws its words, roughly."""


def cells(size: Size) -> list[Cell]:
    """Small and skewed words; in a full session large ones too."""
    warm, seconds = {Size.QUICK: (0.5, 2.0), Size.STANDARD: (3.0, 10.0), Size.FULL: (5.0, 20.0)}[
        size
    ]
    workloads = {
        Size.QUICK: [Workload(50_000, 16, draws=500_000), WORKLOADS["zipf50k"].scaled(8)],
        Size.STANDARD: [Workload(1_000_000, 16, draws=3_000_000), WORKLOADS["zipf50k"]],
        Size.FULL: [WORKLOADS["16x5M"], WORKLOADS["200x1M"], WORKLOADS["zipf50k"]],
    }[size]
    return [
        Cell(
            settings_of(workload) | {"warm_s": warm, "seconds": seconds},
            VARIANTS,
            # Drawing and filling take some seconds per million words.
            _START_S + warm + seconds + workload.keys / 2e5,
        )
        for workload in workloads
    ]


def spec_of(settings: Mapping[str, Setting], seed: int) -> RunSpec:
    """The run of a cell."""
    return RunSpec(
        workload_of(settings),
        warm_s=number(settings, "warm_s"),
        seconds=number(settings, "seconds"),
        seed=seed,
    )


def run(trial: Trial) -> Reading:
    """One variant."""
    variants: dict[str, Callable[[RunSpec, Path], dict[str, Any]]] = {
        "tidelog": _tidelog,
        "direct": _direct,
        "bare": _bare,
    }
    found = variants[trial.variant](spec_of(trial.settings, trial.seed), trial.directory)
    figures = {name: found.pop(name) for name in FIGURES}
    return Reading(figures, notes=found)


def _tidelog(spec: RunSpec, directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = measure(spec, room=directory)
    return found


def _direct(spec: RunSpec, directory: Path) -> dict[str, Any]:
    """The same pipeline with direct updates."""
    counts = DirectCounts(directory / "database")

    def update(pairs: list[tuple[str, int]]) -> list[Any]:
        for word, count in pairs:
            counts.add(word, count)
        return []

    found: dict[str, Any] = measure(
        spec, lambda stages: direct_count(stages.read, update), room=directory
    )
    found["counted"] = counts.total()
    counts.close()
    return found


def _bare(spec: RunSpec, directory: Path) -> dict[str, Any]:
    """A loop over the same buffers, word by word, without any pipeline."""
    stages = Stages(spec.words(), warm_s=spec.warm_s, seconds=spec.seconds)
    counts = DirectCounts(directory / "database")
    position = 0
    while (buffer := stages.read(position)) is not None:
        for word in buffer:
            counts.add(word, 1)
        position += len(buffer)
    assert stages.start and stages.end
    found: dict[str, Any] = {**rates(stages.start, stages.end), "counted": counts.total()}
    counts.close()
    return found | {"read": position}


MEASUREMENT: Final = Measurement("write-buffer", cells, run)
EXPERIMENTS: Final = (
    Experiment(
        name="write-buffer",
        title="The write buffer",
        question="Does the write buffer beat direct updates of RocksDB, although it also writes a "
        "log?",
        group="more",
        measurement=MEASUREMENT,
        figures=(
            Figure("records_per_s", "throughput", "records/s", "higher"),
            Figure("cpu_us_per_record", "CPU per record", "us"),
            Figure("cores_used", "processor used", "cores", "neither"),
        ),
        ratios=(Ratio("tidelog", "direct"), Ratio("tidelog", "bare")),
        plots=(
            Bars("records_per_s", "Records per second"),
            Bars("cpu_us_per_record", "CPU per record, microseconds"),
        ),
    ),
)
