"""A stream in a real Spark has every change once, over restarts and failed batches."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.source.loading import plain
from tests.support.cli import lay_out
from tests.support.damage import checkpoint_in
from tests.support.depth import more_in_depth, only_in_depth
from tests.support.jobs import filled
from tests.unit.spark import synthetic
from tests.unit.spark.source.changelogs import COLUMNS, content_of, expected
from tests.unit.spark.source.reading import bag
from tests.unit.spark.synthetic import Synthetic
from tidelog.ids import Slot
from tidelog.spark import TidelogDataSource
from tidelog.spark.source.job.follow import beginning
from tidelog.storage import object_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

IDENTITY = ("operator", "subtask", "seqno")

Rows = list[dict[str, Any]]


class Follower:
    """A stream whose rows are kept by batch; a batch that runs again replaces its rows."""

    def __init__(self, spark: "SparkSession", location: Path, checkpoint: Path) -> None:
        spark.dataSource.register(TidelogDataSource)
        self.spark = spark
        self.location = location
        self.checkpoint = checkpoint
        self.batches: dict[int, Rows] = {}

    def catch_up(self, before: Callable[[], None] | None = None, **options: str) -> None:
        """Read all there is now; `before` runs in every batch before its rows are kept."""

        def keep(frame: "DataFrame", batch: int) -> None:
            found = [plain(row.asDict()) for row in frame.collect()]
            if before is not None:
                before()
            self.batches[batch] = found

        reader = self.spark.readStream.format("tidelog").option("view", "changes")
        for name, value in options.items():
            reader = reader.option(name, value)
        writer = reader.load(str(self.location)).writeStream.foreachBatch(keep)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    def rows(self) -> Rows:
        return [row for batch in sorted(self.batches) for row in self.batches[batch]]


def retain(location: Path, *slots: int) -> None:
    """Let these be the checkpoints of the store."""
    names = {slot: object_names.checkpoint(Slot(slot)) for slot in (7, 8, 9)}
    # As a job does: the new ones appear, then the old ones go.
    lay_out(location, {names[slot]: filled()[names[slot]] for slot in slots})
    for slot in names.keys() - set(slots):
        (location / names[slot]).unlink(missing_ok=True)


def changes(first: int, last: int) -> Rows:
    """Operator, subtask and number of the changes from one slot's log to the end of another."""
    starts = beginning(checkpoint_in(filled(), first)).next
    return [
        {"operator": operator.id, "subtask": state.index, "seqno": number}
        for operator, state in checkpoint_in(filled(), last).subtasks()
        for number in range(starts[operator.id, state.index], state.seqno)
    ]


@only_in_depth("test_a_batch_that_failed_runs_again_with_the_same_changes restarts a stream too")
def test_a_restarted_stream_goes_on_where_it_was(spark: "SparkSession", tmp_path: Path) -> None:
    location = lay_out(tmp_path / "store", filled())
    follower = Follower(spark, location, tmp_path / "checkpoint")
    for slots in ((7,), (7,), (7, 8), (8, 9)):
        retain(location, *slots)
        follower.catch_up()
    assert bag(follower.rows(), IDENTITY) == bag(changes(7, 9))
    assert [row["slot"] for row in follower.rows()] == sorted(r["slot"] for r in follower.rows())
    assert {row["slot"] for row in follower.rows()} == {7, 8, 9}


def test_a_batch_that_failed_runs_again_with_the_same_changes(
    spark: "SparkSession", tmp_path: Path
) -> None:
    location = lay_out(tmp_path / "store", filled())
    follower = Follower(spark, location, tmp_path / "checkpoint")
    retain(location, 7)
    follower.catch_up()
    retain(location, 7, 8)

    def fail() -> None:
        raise RuntimeError("the sink is down")

    with pytest.raises(Exception, match="the sink is down"):
        follower.catch_up(before=fail)
    assert bag(follower.rows(), IDENTITY) == bag(changes(7, 7))
    # Meanwhile the job goes on, and drops the slot that the failed batch was planned from.
    retain(location, 9)
    with pytest.raises(Exception, match="in none: they were materialized and cut"):
        follower.catch_up()
    retain(location, 8, 9)
    # Spark 4.1 ends when it has repeated the batch that failed.
    for _ in range(more_in_depth(1, 2)):
        follower.catch_up()
    assert bag(follower.rows(), IDENTITY) == bag(changes(7, 9))
    assert [row["slot"] for row in follower.rows()] == sorted(r["slot"] for r in follower.rows())
    assert {row["slot"] for row in follower.rows()} == {7, 8, 9}


def test_a_running_stream_notices_new_checkpoints(spark: "SparkSession", tmp_path: Path) -> None:
    location = lay_out(tmp_path / "store", filled())
    retain(location, 7)
    spark.dataSource.register(TidelogDataSource)
    reader = spark.readStream.format("tidelog").option("pollInterval", "0ms")
    frame = reader.load(str(location)).select(*IDENTITY)
    query = frame.writeStream.format("memory").queryName("followed").start()
    for slots in ((7,), (7, 8), (8, 9)):
        retain(location, *slots)
        query.processAllAvailable()
    query.stop()
    found = [plain(row.asDict()) for row in spark.table("followed").collect()]
    assert bag(found) == bag(changes(7, 9))


def test_a_stream_can_begin_behind_a_slot(spark: "SparkSession", tmp_path: Path) -> None:
    location = lay_out(tmp_path / "store", filled())
    follower = Follower(spark, location, tmp_path / "checkpoint")
    follower.catch_up(startingSlot="8", operator="process", columns="operator,subtask,seqno")
    missing = bag(changes(8, 9)) - bag(changes(8, 8))
    wanted = [r for r in changes(8, 9) if r["operator"] == "process" and bag([r]) <= missing]
    assert bag(follower.rows()) == bag(wanted)


@only_in_depth("source/test_live.py::test_a_stream_follows_a_query_that_runs reads all batches too")
def test_the_changes_of_a_query_are_followed_batch_by_batch(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synthetic, "content_of", content_of)
    made = Synthetic(operators=2, partitions=2).virtual(2)
    location = lay_out(tmp_path / "query", made.objects)
    follower = Follower(spark, location, tmp_path / "checkpoint")
    follower.catch_up()
    lay_out(location, made.failed_attempt().virtual(3).objects)
    follower.catch_up()
    assert bag(follower.rows(), COLUMNS) == bag(expected(made))
    assert {row["slot"] for row in follower.rows()} == set(range(5))
