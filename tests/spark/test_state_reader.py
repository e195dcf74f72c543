"""Spark's state data sources read state that lies in the log."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.support.place import Place
from tests.spark.support.running import run_in_rounds
from tests.spark.support.stored import BATCHES, BEFORE
from tests.spark.support.zoo.aggregations import TOTALS
from tests.spark.support.zoo.query import by_key, records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Keyed = dict[tuple[str, ...], dict[str, object]]


def state(spark: "SparkSession", place: Place, **options: object) -> "DataFrame":
    reader = spark.read.format("statestore")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(str(place.checkpoint))


def totals_in(frame: "DataFrame") -> Keyed:
    rows = frame.selectExpr("key.k", "value.count n", "value.sum", "value.max")
    return by_key([row.asDict() for row in rows.collect()], "k")


@pytest.mark.parametrize("batch", [None, 5, 6])
def test_the_state_after_a_retained_batch_is_read(
    spark: "SparkSession", stored: Place, batch: int | None
) -> None:
    options = {} if batch is None else {"batchId": batch}
    batches = BATCHES[: (BEFORE if batch is None else batch + 1)]
    assert totals_in(state(spark, stored, **options)) == TOTALS.expected(batches)


def test_the_change_feed_has_what_each_batch_changed(spark: "SparkSession", stored: Place) -> None:
    feed = state(spark, stored, readChangeFeed=True, changeStartBatchId=6, changeEndBatchId=8)
    for batch in (6, 7, 8):
        changed = {record["k"] for record in records(BATCHES[batch : batch + 1])}
        after = TOTALS.expected(BATCHES[: batch + 1])
        expected = {key: row for key, row in after.items() if key[0] in changed}
        rows = feed.where(f"batch_id = {batch} and change_type = 'update'")
        assert totals_in(rows) == expected


def snapshots(place: Place) -> Iterator[tuple[int, int]]:
    """Partition and version of every snapshot of the first operator."""
    for file in Path(place.checkpoint, "state", "0").glob("[0-9]*/*.zip"):
        yield int(file.parent.name), int(file.name.partition("_")[0])


def test_state_is_rebuilt_from_a_chosen_snapshot_and_the_changelogs_after_it(
    spark: "SparkSession", place: Place
) -> None:
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "100")  # no snapshot is removed
    newest = TOTALS.expected(run_in_rounds(spark, TOTALS, place))
    found = list(snapshots(place))
    assert found
    for partition, version in found:
        chosen = {"snapshotStartBatchId": version - 1, "snapshotPartitionId": partition}
        rows = totals_in(state(spark, place, **chosen, batchId=8))
        direct = state(spark, place).where(f"partition_id = {partition}")
        assert rows == totals_in(direct)
        assert rows.items() <= newest.items()
