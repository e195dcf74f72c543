"""The state stores that are compared, and the settings of Spark that choose each.

Invariant: the stores differ in what `STORE` says of them and in nothing else. Each is at its best
on an object store: one PUT for an atomic file, without a temporary file that is renamed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Final

from tidelog.errors import ConfigError
from tidelog.spark.plugin.settings import CHANGELOG, FILE_MANAGER, FORMAT, PROVIDER, PROVIDER_CLASS
from tidelog.spark.plugin.toolchain import OLDEST_JAVA, find_java, find_spark, java_version
from tidelog_bench.experiment import Ratio

HDFS: Final = "hdfs"
"""Spark's default: all state in the JVM's heap, a delta file per partition and batch."""
ROCKSDB: Final = "rocksdb"
"""Spark's RocksDB store: new table files and an archive per partition and batch."""
CHANGELOG_STORE: Final = "changelog"
"""The same with changelog checkpointing: a changelog per partition and batch."""
TIDELOG: Final = "tidelog"
"""The same below the plug-in: a segment per executor and batch."""

STORES: Final = (HDFS, ROCKSDB, CHANGELOG_STORE, TIDELOG)
RATIOS: Final = tuple(Ratio(TIDELOG, store) for store in (CHANGELOG_STORE, ROCKSDB, HDFS))
QUICK_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Compiles little, so that short runs measure less of the compiler; the same for all stores."""

CHECKSUMS: Final = "spark.sql.streaming.checkpoint.fileChecksum.enabled"
_HDFS_CLASS: Final = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
_PUT_MANAGER: Final = "tidelog.benchmark.DirectPutCheckpointFileManager"


@dataclass(frozen=True, slots=True)
class Store:
    """How a state store is chosen."""

    provider: str
    changelog: bool
    plugin: bool = False


_BY_NAME: Final = {
    HDFS: Store(_HDFS_CLASS, changelog=False),
    ROCKSDB: Store(PROVIDER_CLASS, changelog=False),
    CHANGELOG_STORE: Store(PROVIDER_CLASS, changelog=True),
    TIDELOG: Store(PROVIDER_CLASS, changelog=True, plugin=True),
}


def store_settings(name: str, plugin: Callable[[], dict[str, str]]) -> dict[str, str]:
    """Settings of one store; `plugin` gives those of the plug-in.

    Spark's own stores have checkpoint format 1, Spark's default and the smaller one: in format 2
    every changelog repeats its lineage, and the HDFS-backed store does not know it.
    """
    store = _BY_NAME[name]
    chosen = {
        PROVIDER: store.provider,
        CHANGELOG: str(store.changelog).lower(),
        FORMAT: "2" if store.plugin else "1",
        CHECKSUMS: "false",
    }
    return chosen | (plugin() if store.plugin else {FILE_MANAGER: _PUT_MANAGER})


def unsupported(store: str, query: str) -> str | None:
    """Why Spark does not run a query with a store; None if it does."""
    if store == HDFS and query == "transform":
        return "transformWithState needs column families, which only Spark's RocksDB store has"
    return None


@cache
def missing(variant: str) -> str | None:
    """Why no application can be started here, and what to install; None if one can."""
    if find_spec("pyspark") is None:
        return "pyspark is not installed; pip install 'tidelog[spark]'"
    try:
        find_spark()
        version = java_version(find_java())
    except ConfigError as error:
        return str(error)
    if version < OLDEST_JAVA:
        return f"Java {version} is too old; install {OLDEST_JAVA} or newer and set JAVA_HOME to it"
    return None
