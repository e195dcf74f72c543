"""One cell of the Spark benchmarks: a query, its size, the machine it sees, and Spark's settings.

Invariants: a run is described by its cell and its store alone; both stores get the same settings,
but for those that choose the store.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tidelog.bench.spark.counted import SCHEME, counted_settings
from tidelog.bench.spark.jar import benchmark_jar
from tidelog.bench.store.manners import Manners
from tidelog.spark import plugin_jar, settings
from tidelog.spark.settings import CHANGELOG, FORMAT, PROVIDER, PROVIDER_CLASS, SNAPSHOT_PERIOD

STORES: Final = ("stock", "tidelog")
"""Spark's RocksDB store with changelog, one PUT per file; and the same below the plug-in."""

_INTERVALS: Final = 4
"""Maintenance intervals between two snapshots, as the defaults of Spark and the plug-in have it."""
_PUT_MANAGER: Final = "tidelog.benchmark.DirectPutCheckpointFileManager"
_STREAMING: Final = "spark.sql.streaming"


@dataclass(frozen=True)
class Cell:
    """What a run is; times in milliseconds."""

    query: str = "wc"
    cores: int = 8
    """Task threads, whatever the machine has."""
    partitions: int = 64
    latency_ms: int = 30
    """Median of a PUT of the file system; other requests follow."""
    batches: int = 60
    warm: int = 15
    """Batches before those that count."""
    maintenance_ms: int = 20_000
    trigger_ms: int = 0
    """Time between the starts of two batches; 0: as fast as it goes."""
    snapshot_every: int = 10
    checksum: bool = False
    """Spark's checksum file beside every file."""
    jar: str = ""
    """The plug-in; one for all runs of an experiment, whatever happens to its sources."""
    conf: tuple[tuple[str, str], ...] = ()
    """Further settings of both stores; stock Spark takes no notice of the plug-in's own."""

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.query} local[{self.cores}] {self.partitions}p {self.latency_ms}ms"

    def describe(self) -> dict[str, Any]:
        """For the record; the jar's name holds the digest of its sources."""
        return asdict(self) | {"jar": Path(self.jar).name}


def spark_settings(cell: Cell, store: str, directory: Path) -> dict[str, str]:
    """All settings of a session."""
    chosen = _plugin(cell) if store == "tidelog" else _stock(cell)
    return _machine(cell, directory) | _common(cell) | chosen | dict(cell.conf)


def _machine(cell: Cell, directory: Path) -> dict[str, str]:
    manners = Manners(latency_ms=cell.latency_ms)
    return {
        "spark.master": f"local[{cell.cores}]",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraClassPath": str(benchmark_jar()),
        "spark.local.dir": str(directory / "local"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    } | {f"spark.hadoop.{key}": value for key, value in counted_settings(manners).items()}


def _common(cell: Cell) -> dict[str, str]:
    return {
        PROVIDER: PROVIDER_CLASS,
        CHANGELOG: "true",
        FORMAT: "2",
        SNAPSHOT_PERIOD: str(cell.snapshot_every),
        "spark.sql.shuffle.partitions": str(cell.partitions),
        f"{_STREAMING}.checkpoint.fileChecksum.enabled": str(cell.checksum).lower(),
        f"{_STREAMING}.stateStore.maintenanceInterval": f"{cell.maintenance_ms}ms",
        f"{_STREAMING}.join.stateFormatVersion": "2",
        f"{_STREAMING}.numRecentProgressUpdates": "100000",
    }


def _stock(cell: Cell) -> dict[str, str]:
    return {f"{_STREAMING}.checkpointFileManagerClass": _PUT_MANAGER}


def _plugin(cell: Cell) -> dict[str, str]:
    return settings(
        jar=cell.jar or plugin_jar(),
        snapshot_every=cell.snapshot_every,
        snapshot_interval=f"{_INTERVALS * cell.maintenance_ms}ms",
        put_schemes=f"s3a,{SCHEME}",
    )
