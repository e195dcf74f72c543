"""What a Spark application of a trial is: its machine, its state store, its settings.

Invariants: a run is described by its job alone; both stores of a pair get the same settings, but
for those that choose the store, and differ in nothing else. Each is at its best on an object store:
one PUT for an atomic file, without a temporary file that is renamed. Nothing here imports pyspark.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tidelog.errors import ConfigError
from tidelog.spark.plugin.jar import plugin_jar
from tidelog.spark.plugin.settings import (
    CHANGELOG,
    FILE_MANAGER,
    FORMAT,
    PROVIDER,
    PROVIDER_CLASS,
    SNAPSHOT_PERIOD,
    settings,
)
from tidelog.spark.plugin.toolchain import OLDEST_JAVA, fitting_java, require_pyspark
from tidelog_bench.experiment import Ratio
from tidelog_bench.store import NONE, LatencyProfile

CHANGELOG_STORE: Final = "changelog"
"""Spark's RocksDB store with changelog checkpointing: a changelog per partition and batch."""
TIDELOG: Final = "tidelog"
"""The same below the plug-in: a segment per batch."""

STORES: Final = (CHANGELOG_STORE, TIDELOG)
RATIOS: Final = (Ratio(TIDELOG, CHANGELOG_STORE),)
QUICK_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Compiles little, so that short runs measure less of the compiler; the same for all stores."""

CHECKSUMS: Final = "spark.sql.streaming.checkpoint.fileChecksum.enabled"
_PUT_MANAGER: Final = "tidelog.benchmark.DirectPutCheckpointFileManager"


@cache
def missing(variant: str) -> str | None:
    """Why no application can be started here, and what to install; None if one can."""
    try:
        require_pyspark()
        fitting_java(OLDEST_JAVA, "Spark itself")
    except ConfigError as error:
        return str(error)
    return None


_PACKAGED: Final = Path(__file__).parent / "native"
_IN_SOURCE_TREE: Final = Path(__file__).parents[3] / "native" / "spark-benchmark" / "src" / "main"


def benchmark_jar(spark_home: Path | None = None) -> Path:
    """Path of the benchmarks' jar, compiled by the first call.

    Raises ConfigError as `plugin_jar` does.
    """
    sources = _PACKAGED if _PACKAGED.is_dir() else _IN_SOURCE_TREE
    return plugin_jar(spark_home, sources=sources, notify=lambda _: None)


SCHEME: Final = "counted"
_CLASS: Final = "tidelog.benchmark.CountedFileSystem"


def counted_settings(profile: LatencyProfile) -> dict[str, str]:
    """What Hadoop has to know; before each name Spark wants `spark.hadoop.`."""
    prefix = f"fs.{SCHEME}"
    return {
        f"{prefix}.impl": _CLASS,
        f"{prefix}.latency.ms": str(profile.latency_ms),
        f"{prefix}.mb.per.s": str(profile.mb_per_s),
        f"{prefix}.connection.mb.per.s": str(profile.connection_mb_per_s),
        f"{prefix}.seed": str(profile.seed),
    }


SNAPSHOT_EVERY: Final = 10
"""Batches between two snapshots of a state store: Spark's default."""
_INTERVALS: Final = 4
_STREAMING: Final = "spark.sql.streaming"


@dataclass(frozen=True, slots=True)
class Job:
    """One application; times in milliseconds."""

    store: str
    partitions: int
    latency_ms: float
    """Median of a PUT; 0: a store that answers at once."""
    mb_per_s: float
    """Bandwidth of all transfers of the application together, if there is latency."""
    maintenance_ms: int
    seed: int
    jvm: str = ""
    """Further options of the JVM."""
    trigger_ms: int = 0
    """Time between the starts of two batches; 0: as fast as it goes."""
    snapshot_interval_ms: int | None = None
    """The least time between two snapshots below the plug-in. None: four maintenance intervals, as
    the defaults of Spark and the plug-in have it; 0: as often as without the plug-in.
    """

    def settings(self, directory: Path) -> dict[str, str]:
        """Of the application.

        Spark's own store has checkpoint format 1, Spark's default and the smaller one: in format 2
        every changelog repeats its lineage.
        """
        link = NONE
        if self.latency_ms:
            link = LatencyProfile(self.latency_ms, self.mb_per_s, self.seed)
        jar = plugin_jar(notify=lambda _: None)
        common = {
            # As many task slots as cores, as executors of clusters have: with more of them a
            # store's waiting is hidden by other tasks.
            "spark.master": "local[*]",
            "spark.driver.memory": "2g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            # The plug-in's for all stores: applications that share a JVM have one class path.
            "spark.driver.extraClassPath": f"{benchmark_jar()}:{jar}",
            "spark.driver.extraJavaOptions": self.jvm,
            "spark.local.dir": str(directory / "local"),
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            **{f"spark.hadoop.{key}": value for key, value in counted_settings(link).items()},
            SNAPSHOT_PERIOD: str(SNAPSHOT_EVERY),
            "spark.sql.shuffle.partitions": str(self.partitions),
            f"{_STREAMING}.stateStore.maintenanceInterval": f"{self.maintenance_ms}ms",
            # Four state stores for every partition.
            f"{_STREAMING}.join.stateFormatVersion": "2",
            f"{_STREAMING}.numRecentProgressUpdates": "100000",
            PROVIDER: PROVIDER_CLASS,
            CHANGELOG: "true",
            CHECKSUMS: "false",
        }
        if self.store != TIDELOG:
            return common | {FORMAT: "1", FILE_MANAGER: _PUT_MANAGER}
        interval_ms = self.snapshot_interval_ms
        if interval_ms is None:
            interval_ms = _INTERVALS * self.maintenance_ms
        return common | settings(
            jar=jar,
            snapshot_every=SNAPSHOT_EVERY,
            snapshot_interval=f"{interval_ms}ms",
            put_schemes=f"s3a,{SCHEME}",
        )
