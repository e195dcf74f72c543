"""Whether the write buffer pays: the word count with its log, against direct updates of RocksDB.

Invariant: all variants count the same words in the same buffers; `direct` and `bare` make nothing
durable.
"""

import struct
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rocksdict import Cache, WriteBufferManager, WriteOptions

from tidelog.table.rocksdb_options import RocksMemory, RocksOptions
from tidelog.table.rocksdict_options import table_options
from tidelog_bench.embedded.jobs import direct_count
from tidelog_bench.embedded.meter import rates
from tidelog_bench.embedded.run import RunSpec, measure, spec_of
from tidelog_bench.embedded.stages import Stages
from tidelog_bench.embedded.workload import WORKLOADS, Workload
from tidelog_bench.experiment import Bars, Experiment, Figure, Ratio
from tidelog_bench.measurement import Cell, Measurement, Reading, Size, Trial

_COUNT: Final = struct.Struct("<q")


class DirectCounts:
    """A count per word in RocksDB, read and written one by one.

    The database has the options of tidelog's own tables, and no log of its own.
    """

    def __init__(self, directory: Path) -> None:
        memory = RocksMemory()
        cache = Cache.new_hyper_clock_cache(memory.block_cache_bytes, 0)
        buffers = WriteBufferManager(memory.write_buffers_bytes, False)
        options = table_options(RocksOptions().within(memory), cache, buffers)
        self._database = options.open(directory)
        self.add = self._adder()
        """Adds to the count of a word: a get and a put."""

    def _adder(self) -> Callable[[str, int], None]:
        get, put, pack, unpack = self._database.get, self._database.put, _COUNT.pack, _COUNT.unpack
        options = WriteOptions()
        # A property at run time, whatever rocksdict's stub says.
        options.disable_wal = True  # type: ignore[assignment, method-assign]

        def add(word: str, count: int) -> None:
            key = word.encode()
            stored = get(key)
            put(key, pack(count if stored is None else unpack(stored)[0] + count), options)

        return add

    def total(self) -> int:
        """The sum of all counts."""
        return sum(_COUNT.unpack(stored)[0] for stored in self._database.values())

    def close(self) -> None:
        """Close the database."""
        self._database.close()


VARIANTS: Final = ("tidelog", "direct", "bare")
FIGURES: Final = ("records", "records_per_s", "cpu_us_per_record", "cores_used")
_START_S: Final = 2.0
"""Seconds that a process takes to start and to draw its words, roughly."""


def cells(size: Size) -> list[Cell]:
    """Small and skewed words; in a full session large ones too."""
    warm, seconds = {Size.QUICK: (0.5, 1.5), Size.STANDARD: (2.0, 6.0), Size.FULL: (5.0, 20.0)}[
        size
    ]
    workloads = {
        Size.QUICK: [Workload(50_000, 16, draws=300_000)],
        Size.STANDARD: [Workload(500_000, 16, draws=2_000_000), WORKLOADS["zipf50k"]],
        Size.FULL: [WORKLOADS["16x5M"], WORKLOADS["200x1M"], WORKLOADS["zipf50k"]],
    }[size]
    return [
        Cell(
            asdict(workload) | {"warm_s": warm, "seconds": seconds},
            VARIANTS,
            # Drawing and filling take some seconds per million words.
            _START_S + warm + seconds + workload.keys / 2e5,
        )
        for workload in workloads
    ]


def run(trial: Trial) -> Reading:
    """Count words with the trial's variant of the buffer; returns the figures."""
    spec, directory = spec_of(trial), trial.directory
    if trial.variant == "tidelog":
        found = measure(spec, room=directory)
    else:
        found = (_direct if trial.variant == "direct" else _bare)(spec, directory)
    figures = {name: found.pop(name) for name in FIGURES}
    return Reading(figures, notes=found)


def _direct(spec: RunSpec, directory: Path) -> dict[str, float]:
    """The same pipeline with direct updates."""
    counts = DirectCounts(directory / "database")

    def update(pairs: list[tuple[str, int]]) -> list[Any]:
        for word, count in pairs:
            counts.add(word, count)
        return []

    found = measure(spec, lambda stages: direct_count(stages.read, update), room=directory)
    found["counted"] = counts.total()
    counts.close()
    return found


def _bare(spec: RunSpec, directory: Path) -> dict[str, float]:
    """A loop over the same buffers, word by word, without any pipeline."""
    stages = Stages(spec.words(), warm_s=spec.warm_s, seconds=spec.seconds)
    counts = DirectCounts(directory / "database")
    position = 0
    while (buffer := stages.read(position)) is not None:
        for word in buffer:
            counts.add(word, 1)
        position += len(buffer)
    assert stages.start and stages.end
    found = rates(stages.start, stages.end) | {"counted": counts.total(), "read": position}
    counts.close()
    return found


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
