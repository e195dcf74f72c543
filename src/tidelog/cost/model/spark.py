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
from tidelog.cost.model.tables import Snapshot, TableRules, snapshot
from tidelog.cost.model.usage import MONTH_S, Flow, Reads, Usage
from tidelog.cost.model.workload import Workload

Count = Annotated[float, msgspec.Meta(ge=0)]


class FileClass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One class of files of a checkpoint; counts are per occasion named by `per`."""

    name: str
    per: Literal[
        "partition-batch", "partition-snapshot", "partition-tick", "executor-batch", "query-batch"
    ]
    holds: Literal["log", "table"] | None = None
    bytes: Count = 0.0
    """Size of one file, unless it holds log or table."""
    put: Count = 0.0
    get: Count = 0.0
    list: Count = 0.0
    atomic: bool = False
    """Written beside and renamed, where the file manager does that."""


class StoreCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All classes of files of one kind of store."""

    strategy: Strategy
    source: str
    files: tuple[FileClass, ...]


class _Counts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    stores: tuple[StoreCounts, ...]


@cache
def spark_counts() -> dict[Strategy, StoreCounts]:
    """What was counted, by strategy."""
    data = files("tidelog.cost.model").joinpath("spark_counts.toml").read_bytes()
    stores = msgspec.toml.decode(data, type=_Counts).stores
    return {store.strategy: store for store in stores}


MAINTENANCE_S: Final = 60.0
"""Spark's default of `stateStore.maintenanceInterval`."""
MIN_DELTAS: Final = 10
"""Spark's default of `stateStore.minDeltasForSnapshot`, in batches."""
RETAINED_BATCHES: Final = 100
"""Spark's default of `minBatchesToRetain`."""
_EXTRA: Final = 1 + 0.3 / 2
"""Files on average over files needed: Spark deletes when 30 % more lie there than
`minBatchesToRetain` needs (`ratioExtraSpaceAllowedInCheckpoint`)."""
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


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """What the settings of an embedded job do not know."""

    stores: int = 1
    """State stores per partition: 4 for a stream-stream join of state format 2."""
    rename: bool = False
    """Atomic files are written beside and renamed, which object stores do by a copy."""
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
    flows = tuple(query.flow(file) for file in query.files if file.put)
    return Estimate(
        strategy=strategy,
        usage=Usage(flows, query.reads()),
        cycle_s=query.batch_s,
        checkpoint_s=None,
        restore_s=query.restore_s(),
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
    def files(self) -> tuple[FileClass, ...]:
        return spark_counts()[self.strategy].files

    @property
    def batch_s(self) -> float:
        return self.settings.checkpoint_interval

    @property
    def state_stores(self) -> int:
        return self.settings.parallelism * self.options.stores

    @property
    def snapshot_s(self) -> float:
        """Seconds between two uploads of a snapshot of one store."""
        if self.strategy is Strategy.SPARK_ROCKSDB:
            return self.batch_s
        return max(MAINTENANCE_S, self.taken_s)

    @property
    def taken_s(self) -> float:
        """Seconds between two snapshots that a store takes; maintenance uploads the newest one."""
        period = MIN_DELTAS * self.batch_s
        if self.strategy is Strategy.SPARK_TIDELOG:
            fitting = (period * 2**times for times in range(_MOST_DOUBLINGS, 0, -1))
            return next((p for p in fitting if p <= self.options.snapshot_interval_s), period)
        return period

    @property
    def retained_s(self) -> float:
        """How long a file stays that no newer batch needs."""
        return RETAINED_BATCHES * _EXTRA * self.batch_s + MAINTENANCE_S / 2

    def occasions_per_s(self, file: FileClass) -> float:
        """How often the occasion comes that a class of files is counted per."""
        return {
            "partition-batch": self.state_stores / self.batch_s,
            "partition-snapshot": self.state_stores / self.snapshot_s,
            "partition-tick": self.state_stores / MAINTENANCE_S,
            "executor-batch": self.settings.processes / self.batch_s,
            "query-batch": 1 / self.batch_s,
        }[file.per]

    def table(self) -> Snapshot:
        """A snapshot of one state store."""
        rows = self.rows_per_batch()
        if self.strategy is Strategy.SPARK_HDFS:
            size = self.workload.table_bytes / self.state_stores
            return Snapshot(size, 1, size, 1)
        per_s = rows / self.batch_s
        row = self.workload.row_bytes + _RULES.memtable_row_bytes
        # RocksDB is flushed whenever a snapshot is taken.
        least = max(1, int(per_s / self.state_stores * row * self.taken_s))
        rules = replace(_RULES, memtable_bytes=min(_RULES.memtable_bytes, least))
        return snapshot(self.workload, self.state_stores, rules, per_s, self.snapshot_s)

    def rows_per_batch(self) -> float:
        """A batch writes each of its keys once."""
        return self.workload.distinct(self.batch_s)

    def changed_bytes(self) -> float:
        """Bytes of the changelogs of a batch.

        With checkpoint format 2 each names all versions since the last snapshot.
        """
        named = 0.0
        if self.strategy in (Strategy.SPARK_CHANGELOG, Strategy.SPARK_TIDELOG):
            named = self.state_stores * _VERSION_BYTES * self.taken_s / self.batch_s / 2
        rows = self.rows_per_batch() * self.workload.row_bytes * self.workload.compression
        return rows + named

    def flow(self, file: FileClass) -> Flow:
        """The files of one class."""
        per_s = self.occasions_per_s(file) * file.put
        life, size = self.retained_s, file.bytes
        if file.holds == "log":
            size = self.changed_bytes() / self.batch_s / per_s
            life += self.snapshot_s / 2
        elif file.holds == "table":
            table = self.table()
            size = table.new_bytes / file.put
            life += table.stored_bytes / table.new_bytes * self.snapshot_s
        requests = 2.0 if file.atomic and self.options.rename else 1.0
        return Flow(file.name, per_s, size, life, requests)

    def reads(self) -> Reads:
        """Requests while the query runs, and those of restores."""
        gets = sum(self.occasions_per_s(file) * file.get for file in self.files)
        lists = sum(self.occasions_per_s(file) * file.list for file in self.files)
        per_s = self.settings.restores_per_month / MONTH_S
        return Reads(
            gets=gets + per_s * self.restored_files(),
            lists=lists + per_s * self.state_stores,
            bytes=per_s * self.restored_bytes(),
        )

    def batches_behind(self) -> float:
        """Batches whose changes a restore replays, at most."""
        if self.strategy is Strategy.SPARK_ROCKSDB:
            return 0.0
        return (self.taken_s + MAINTENANCE_S) / self.batch_s

    def restored_files(self) -> float:
        """GET requests of a restore; Spark opens each changelog twice."""
        tables = self.state_stores * (1 + self.table().stored_files)
        behind = self.batches_behind()
        if self.strategy is Strategy.SPARK_TIDELOG:
            return tables + behind * (self.settings.processes + 1 / MIN_DELTAS)
        return tables + 2 * behind * self.state_stores

    def restored_bytes(self) -> float:
        """Bytes that a restore reads."""
        tables = self.state_stores * self.table().stored_bytes
        return tables + self.batches_behind() * self.changed_bytes()

    def restore_s(self) -> float:
        """Requests and bytes, shared by the executors; no replay."""
        link, executors = self.settings.link, self.settings.processes
        requests = (self.restored_files() + self.state_stores) / executors / link.requests
        return requests * link.latency_s + self.restored_bytes() / executors / link.bytes_per_s
