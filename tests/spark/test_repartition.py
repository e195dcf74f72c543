"""The number of state partitions changes offline."""

import json
from typing import TYPE_CHECKING

import pytest

from tests.spark.support.place import Place
from tests.spark.support.running import add, finish
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
