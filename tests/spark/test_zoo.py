"""Every kind of stateful query, restarted between parts of its input, gives what plain Python
computes from all of it.
"""

from typing import TYPE_CHECKING

import pytest

from tests.spark.support.census import assert_complete
from tests.spark.support.place import Place
from tests.spark.support.running import run_in_rounds
from tests.spark.support.zoo.all import QUERIES
from tests.spark.support.zoo.query import Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


NEEDS_RETRIES = {"clumsy_totals"}
"""A session on local[2] does not repeat a failed task; tests/spark/kills runs them."""

IN_ONE_JVM = {name: query for name, query in QUERIES.items() if name not in NEEDS_RETRIES}


@pytest.mark.parametrize("query", IN_ONE_JVM.values(), ids=IN_ONE_JVM)
def test_a_restarted_query_gives_what_one_computation_over_all_input_gives(
    spark: "SparkSession", place: Place, query: Query, has_plugin: bool
) -> None:
    # As on HDFS: files appear by rename.
    batches = run_in_rounds(spark, query, place, f"renaming://{place.checkpoint}")

    result = query.result(place.rows())
    assert result == query.expected(batches)
    assert result, "the query must have had something to say"
    if has_plugin:
        assert_complete(place.checkpoint)
