"""Spark's state data sources read state that lies in the log."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.support.place import Place
from tests.spark.support.running import add, finish, run_in_rounds
from tests.spark.support.stored import BATCHES, BEFORE
from tests.spark.support.zoo.aggregations import TOTALS
from tests.spark.support.zoo.all import QUERIES
from tests.spark.support.zoo.processors import TALLIES
from tests.spark.support.zoo.query import Batch, by_key, records

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


def test_the_metadata_names_operators_and_batches(spark: "SparkSession", stored: Place) -> None:
    (row,) = spark.read.format("state-metadata").load(str(stored.checkpoint)).collect()

    found = (row.operatorName, row.stateStoreName, row.numPartitions, row.maxBatchId)
    assert found == ("stateStoreSave", "default", 3, BEFORE - 1)


def test_both_sides_of_a_join_are_read(spark: "SparkSession", place: Place) -> None:
    query = QUERIES["inner_join_format_2"]
    batches: list[Batch] = query.batches()[:4]
    add(place, batches)
    finish(spark, query, place)

    for side, key, time in (("left", "k", "lts"), ("right", "rk", "rts")):
        rows = state(spark, place, joinSide=side).selectExpr(
            f"value.{key} AS k", f"CAST(value.{time} AS LONG) AS t"
        )
        kept = Counter((row.k, row.t) for row in rows.collect())
        given = Counter((one["k"], one["t"]) for one in records(batches, side))
        newest = max(at for _, at in given)
        assert kept <= given
        # The watermark trails by 20 s: what is newer cannot have been removed.
        assert kept >= Counter({at: n for at, n in given.items() if at[1] > newest - 20})
        keys = state(spark, place, storeName=f"{side}-keyToNumValues")
        assert keys.count() == len({key for key, _ in kept})


def test_variables_of_a_processor_are_read(spark: "SparkSession", place: Place) -> None:
    batches = run_in_rounds(spark, TALLIES, place)

    counts = state(spark, place, stateVarName="count").selectExpr("key.k", "value.n")
    expected = {key: row["n"] for (key,), row in TALLIES.expected(batches).items()}
    assert {row.k: row.n for row in counts.collect()} == expected


def test_repairs_and_readers_agree_after_more_batches(spark: "SparkSession", place: Place) -> None:
    batches = TOTALS.batches()
    for batch in batches:
        add(place, [batch])
        finish(spark, TOTALS, place)

        so_far = TOTALS.expected(batches[: place.batches()])
        assert totals_in(state(spark, place)) == so_far
