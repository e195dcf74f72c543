"""The estimate for Spark Structured Streaming: its own state stores, and tidelog's plug-in.

Invariants: numbers of files and requests are those that were counted, `spark_counts.toml`, scaled
by partitions, executors and batches; sizes are estimated, and replay is not counted, because it was
not measured. Spark's maintenance and retention have their defaults.
"""

from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Annotated, Final, Literal

import msgspec

from tidelog.cost.model.estimate import Estimate, Strategy
from tidelog.cost.model.settings import Settings
from tidelog.cost.model.tables import MEMTABLE_ROW_BYTES, TableRules, TableUpload, snapshot
from tidelog.cost.model.usage import MONTH_S, Flow, Reads, Usage
from tidelog.cost.model.workload import Workload

MAINTENANCE_S: Final = 60.0
"""Spark's default of `stateStore.maintenanceInterval`."""
_MIN_DELTAS: Final = 10
"""Spark's default of `stateStore.minDeltasForSnapshot`, in batches."""
_RETAINED_BATCHES: Final = 100 * (1 + 0.3 / 2)
"""Spark's default of `minBatchesToRetain`, and what lies there besides on average: it deletes when
30 % more do (`ratioExtraSpaceAllowedInCheckpoint`)."""
_MOST_DOUBLINGS: Final = 4
"""The plug-in doubles Spark's snapshot period up to so many times, to come near the interval that
is set: `SnapshotPeriod` in its Scala sources."""
_VERSION_BYTES: Final = 50
"""About what one entry of a changelog's lineage takes, a version and its checkpoint id:
docs/guides/spark.md."""
_RULES: Final = TableRules(
    memtable_bytes=64 << 20, level0_files=4, file_bytes=64 << 20, flushes_per_snapshot=1
)
"""RocksDB's own defaults, which Spark keeps."""

_Count = Annotated[float, msgspec.Meta(ge=0)]


class FileClass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One class of files of a checkpoint; counts are per occasion named by `per`."""

    name: str
    per: Literal[
        "partition-batch", "partition-snapshot", "partition-tick", "executor-batch", "query-batch"
    ]
    holds: Literal["log", "table"] | None = None
    bytes: _Count = 0.0
    """Size of one file, unless it holds log or table."""
    put: _Count = 0.0
    get: _Count = 0.0
    list: _Count = 0.0
    atomic: bool = False
    """Written under another name and renamed, where the file manager does that."""


class StoreCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All classes of files of one kind of store."""

    strategy: Strategy
    source: str
    files: tuple[FileClass, ...]


@cache
def spark_counts() -> dict[Strategy, StoreCounts]:
    """What was counted, by strategy."""
    data = files("tidelog.cost.model").joinpath("spark_counts.toml").read_bytes()
    stores = msgspec.toml.decode(data, type=dict[Literal["stores"], tuple[StoreCounts, ...]])
    return {store.strategy: store for store in stores["stores"]}


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """What the settings of an embedded job do not know."""

    stores: int = 1
    """State stores per partition: 4 for a stream-stream join of state format 2."""
    rename: bool = False
    """Atomic files are renamed, which object stores do by a copy."""
    snapshot_interval_s: float = 240.0
    """`spark.tidelog.snapshot.interval` of the plug-in."""


def estimate_spark(
    strategy: Strategy,
    workload: Workload,
    settings: Settings,
    options: SparkOptions = SparkOptions(),
) -> Estimate:
    """Estimate a streaming query with one batch per checkpoint interval.

    Its partitions are the subtasks, its executors the processes.
    """
    query = _Query(strategy, workload, settings, options)
    classes = spark_counts()[strategy].files
    restored = query.restored()
    per_s = settings.restores_per_month / MONTH_S
    flows = tuple(query.flow(file) for file in classes if file.put)
    reads = Reads(
        gets=sum(query.per_s(file) * file.get for file in classes) + per_s * restored.gets,
        lists=sum(query.per_s(file) * file.list for file in classes) + per_s * restored.lists,
        bytes=per_s * restored.bytes,
    )
    link, executors = settings.link, settings.processes
    requests = (restored.gets + restored.lists) / link.requests
    return Estimate(
        strategy=strategy,
        usage=Usage(flows, reads),
        cycle_s=query.batch_s,
        checkpoint_s=None,
        # Shared by the executors; no replay.
        restore_s=(requests * link.latency_s + restored.bytes / link.bytes_per_s) / executors,
        replay_counted=False,
        materialize_s=query.snapshot_s,
    )


@dataclass(frozen=True, slots=True)
class _Query:
    strategy: Strategy
    workload: Workload
    settings: Settings
    options: SparkOptions

    @property
    def batch_s(self) -> float:
        return self.settings.checkpoint_interval

    @property
    def state_stores(self) -> int:
        return self.settings.parallelism * self.options.stores

    @property
    def snapshot_s(self) -> float:
        """Seconds between two uploads of a snapshot of one store: maintenance uploads the newest
        one.
        """
        if self.strategy is Strategy.SPARK_ROCKSDB:
            return self.batch_s
        return max(MAINTENANCE_S, self.taken_s)

    @property
    def taken_s(self) -> float:
        """Seconds between two snapshots that a store takes."""
        period = _MIN_DELTAS * self.batch_s
        if self.strategy is Strategy.SPARK_TIDELOG:
            fitting = (period * 2**times for times in range(_MOST_DOUBLINGS, 0, -1))
            return next((p for p in fitting if p <= self.options.snapshot_interval_s), period)
        return period

    def per_s(self, file: FileClass) -> float:
        """How often the occasion comes that a class of files is counted per."""
        return {
            "partition-batch": self.state_stores / self.batch_s,
            "partition-snapshot": self.state_stores / self.snapshot_s,
            "partition-tick": self.state_stores / MAINTENANCE_S,
            "executor-batch": self.settings.processes / self.batch_s,
            "query-batch": 1 / self.batch_s,
        }[file.per]

    def table(self) -> TableUpload:
        """A snapshot of one state store."""
        if self.strategy is Strategy.SPARK_HDFS:
            size = self.workload.table_bytes / self.state_stores
            return TableUpload(size, 1, size, 1)
        # A batch writes each of its keys once.
        per_s = self.workload.distinct(self.batch_s) / self.batch_s
        row = self.workload.row_bytes + MEMTABLE_ROW_BYTES
        # RocksDB is flushed whenever a snapshot is taken.
        least = max(1, int(per_s / self.state_stores * row * self.taken_s))
        rules = replace(_RULES, memtable_bytes=min(_RULES.memtable_bytes, least))
        return snapshot(self.workload, self.state_stores, rules, per_s, self.snapshot_s)

    def log_bytes(self) -> float:
        """Bytes of the changelogs of a batch.

        With checkpoint format 2 each names all versions since the last snapshot.
        """
        named = 0.0
        if self.strategy in (Strategy.SPARK_CHANGELOG, Strategy.SPARK_TIDELOG):
            named = self.state_stores * _VERSION_BYTES * self.taken_s / self.batch_s / 2
        rows = self.workload.distinct(self.batch_s)
        return rows * self.workload.row_bytes * self.workload.compression + named

    def flow(self, file: FileClass) -> Flow:
        """The files of one class; they stay while some retained batch needs them."""
        per_s = self.per_s(file) * file.put
        life, size = _RETAINED_BATCHES * self.batch_s + MAINTENANCE_S / 2, file.bytes
        if file.holds == "log":
            size = self.log_bytes() / self.batch_s / per_s
            life += self.snapshot_s / 2
        elif file.holds == "table":
            table = self.table()
            size = table.new_bytes / file.put
            life += table.stored_bytes / table.new_bytes * self.snapshot_s
        requests = 2.0 if file.atomic and self.options.rename else 1.0
        return Flow(file.name, per_s, size, life, requests)

    def restored(self) -> Reads:
        """One restore, when the log is longest; Spark opens each changelog twice."""
        table, stores = self.table(), self.state_stores
        batches = (self.taken_s + MAINTENANCE_S) / self.batch_s
        if self.strategy is Strategy.SPARK_ROCKSDB:
            batches = 0.0
        logs = batches * 2 * stores
        if self.strategy is Strategy.SPARK_TIDELOG:
            logs = batches * (self.settings.processes + 1 / _MIN_DELTAS)
        return Reads(
            gets=stores * (1 + table.stored_files) + logs,
            lists=stores,
            bytes=stores * table.stored_bytes + batches * self.log_bytes(),
        )
