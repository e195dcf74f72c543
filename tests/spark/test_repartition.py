"""The number of state partitions changes offline, and damaged snapshots are replaced."""

import json
from typing import TYPE_CHECKING

import pytest

from tests.spark.support.place import Place
from tests.spark.support.running import add, finish
from tests.spark.support.zoo.aggregations import TOTALS
from tests.spark.support.zoo.all import QUERIES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPARTITIONED = [
    "totals",
    "distinct",
    "inner_join_format_2",
    "inner_join_format_3",
    "transform_with_state_in_pandas",
]


@pytest.mark.parametrize("name", REPARTITIONED)
def test_a_query_goes_on_with_another_number_of_partitions(
    spark: "SparkSession", place: Place, name: str
) -> None:
    query = QUERIES[name]
    batches = query.batches()
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    add(place, batches[:3])
    finish(spark, query, place)

    for number, part in ((7, batches[3:6]), (2, batches[6:])):
        spark._streamingCheckpointManager.repartition(str(place.checkpoint), number)
        add(place, part)
        finish(spark, query, place)

        assert max(_partitions(place)) + 1 == number

    assert query.result(place.rows()) == query.expected(batches)


def _partitions(place: Place) -> list[int]:
    """The partitions that have had a batch since the last repartition."""
    line = (place.checkpoint / "commits" / str(place.committed()[-1])).read_text().split("\n")[1]
    return list(range(len(json.loads(line)["stateUniqueIds"]["0"])))


def test_a_damaged_snapshot_is_repaired_from_an_older_one_and_the_changelogs(
    spark: "SparkSession", place: Place
) -> None:
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "50")
    batches = TOTALS.batches()
    add(place, batches[:7])
    finish(spark, TOTALS, place)

    newest = {
        max(partition.glob("*.zip"), key=lambda file: int(file.name.partition("_")[0]))
        for partition in (place.checkpoint / "state" / "0").glob("[0-9]*")
        if list(partition.glob("*.zip"))
    }
    assert newest
    for snapshot in newest:
        snapshot.write_bytes(b"PK" + b"\0" * 100)
        (snapshot.parent / f".{snapshot.name}.crc").unlink(missing_ok=True)
    add(place, batches[7:])
    finish(spark, TOTALS, place)

    assert TOTALS.result(place.rows()) == TOTALS.expected(batches)
