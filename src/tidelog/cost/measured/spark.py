"""Facts gathered by Spark, from the views `blocks` and `changes` of the data source.

Invariants: what travels to the driver is sums, never blocks or changes; one read of the log per
view, even though several sums are made of it. pyspark is imported on use.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tidelog.changelog.change import CHANGE_OVERHEAD_BYTES, ROW_PREFIX_BYTES
from tidelog.checkpoint.manifest import Checkpoint
from tidelog.concurrency import Progress
from tidelog.cost.measured.facts import (
    BlockFacts,
    Held,
    Rows,
    Tally,
    Written,
)
from tidelog.effects import Effects
from tidelog.ids import SubtaskId
from tidelog.spark.session import SparkJobs
from tidelog.storage.access import StoreAccess

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_BUNDLE: Final = "32m"
"""Objects are read together up to this size: segments are many and small."""
_BLOCK: Final = ("metadata", "first_seqno", "end_seqno", "raw_bytes", "stored_bytes")
_BLOCKS: Final = "operator,subtask,kind,first_seqno,end_seqno,raw_bytes,stored_bytes,referenced_by"
_CHANGES: Final = "slot,operator,subtask,state_id,op,key,value"


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Batch jobs on a session; `url` is the store as executors open it."""

    session: "SparkSession"
    effects: Effects
    url: str
    access: StoreAccess = field(default_factory=StoreAccess)

    name: ClassVar[str] = "spark"

    async def blocks(self, checkpoints: Sequence[Checkpoint], progress: Progress) -> BlockFacts:
        """See `Engine`; raises RestoreError when the Spark job fails."""
        slots = [int(checkpoint.slot) for checkpoint in checkpoints]
        return await self._jobs.run(lambda: self._blocks(slots), progress)

    async def changes(
        self, checkpoints: Sequence[Checkpoint], logs: Collection[Held], progress: Progress
    ) -> Mapping[Written, Rows]:
        """See `Engine`; raises RestoreError when the Spark job fails."""
        return await self._jobs.run(lambda: self._changes(logs), progress) if logs else {}

    @property
    def _jobs(self) -> SparkJobs:
        return SparkJobs(self.session, self.effects, "tidelog overhead")

    def _blocks(self, slots: Sequence[int]) -> BlockFacts:
        from pyspark.sql import functions as f  # noqa: PLC0415

        named = (
            self._view("blocks", columns=_BLOCKS)
            .where(f.col("kind") != "in-flight")
            .withColumn("metadata", f.col("kind") == "metadata")
            .withColumn("slot", f.explode("referenced_by"))
            .where(f.col("slot").isin(list(slots)))
            .select("slot", "operator", "subtask", *_BLOCK)
            .persist()
        )
        try:
            held = named.groupBy("slot", "operator", "subtask").agg(*_sums()).collect()
            once = named.drop("slot").distinct().groupBy("operator", "subtask").agg(*_sums())
            return BlockFacts(
                {Held(row.slot, row.operator, row.subtask): _tally(row) for row in held},
                {SubtaskId(row.operator, row.subtask): _tally(row) for row in once.collect()},
            )
        finally:
            named.unpersist()

    def _changes(self, logs: Collection[Held]) -> dict[Written, Rows]:
        from pyspark.sql import functions as f  # noqa: PLC0415

        slots = ",".join(str(slot) for slot in sorted({log.slot for log in logs}))
        operators = {log.operator for log in logs}
        # The option takes names between commas; the join below is exact in any case.
        option = {} if any("," in each for each in operators) else {"operator": ",".join(operators)}
        view = self._view("changes", columns=_CHANGES, slot=slots, **option)
        wanted = self.session.createDataFrame(
            [tuple(log) for log in logs], "slot bigint, operator string, subtask int"
        )
        size = f.length("key") + f.coalesce(f.length("value"), f.lit(0))
        rows = (
            view.join(f.broadcast(wanted), ["slot", "operator", "subtask"])
            .groupBy("slot", "operator", "subtask", "state_id", "op")
            .agg(f.count("*").alias("rows"), f.sum(size).alias("own_bytes"))
            .collect()
        )
        return {
            Written(Held(r.slot, r.operator, r.subtask), r.state_id, r.op == "delete"): Rows(
                r.rows, r.own_bytes + r.rows * (ROW_PREFIX_BYTES + CHANGE_OVERHEAD_BYTES)
            )
            for r in rows
        }

    def _view(self, name: str, **options: str) -> "DataFrame":
        from tidelog.spark import TidelogDataSource  # noqa: PLC0415

        self.session.dataSource.register(TidelogDataSource)
        reader = self.session.read.format("tidelog").option("view", name).option("layout", "job")
        if self.access.endpoint is not None:
            reader = reader.option("endpoint", self.access.endpoint)
        if self.access.encryption_key is not None:
            reader = reader.option("encryptionKey", self.access.encryption_key)
        for option, text in {"partitionBytes": _BUNDLE, **options}.items():
            reader = reader.option(option, text)
        return reader.load(self.url)


def _sums() -> "list[Column]":
    from pyspark.sql import functions as f  # noqa: PLC0415

    return [
        f.count("*").alias("blocks"),
        f.sum(f.col("end_seqno") - f.col("first_seqno")).alias("changes"),
        f.sum("raw_bytes").alias("raw_bytes"),
        f.sum("stored_bytes").alias("stored_bytes"),
    ]


def _tally(row: Any) -> Tally:
    return Tally(row.blocks, row.changes, row.raw_bytes, row.stored_bytes)
