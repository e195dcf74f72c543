"""Every kind of stateful query, restarted between parts of its input, gives what plain Python
computes from all of it.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.spark.support.census import assert_complete
from tests.spark.support.place import Place
from tests.spark.support.running import ROUNDS, run_in_rounds
from tests.spark.support.zoo.all import QUERIES
from tests.spark.support.zoo.query import Batch, Query
from tests.support.depth import more_in_depth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


NEEDS_RETRIES = {"clumsy_totals"}
"""A session on local[2] does not repeat a failed task; tests/spark/kills runs them."""

PROVED_ELSEWHERE = {
    "totals": "the faults of uploads",
    "tumbling_windows": "three_stateful_operators",
    "join_by_a_processor": "the same class in Spark and embedded",
    "inner_join_format_2": "left_outer_join_format_2",
    "left_outer_join_format_3": "inner_join_format_3",
    "left_outer_join_format_4": "inner_join_format_4",
    "transform_with_state_in_pandas": "the same class in Spark and embedded",
}
"""Queries of deep runs, each with what runs its operators and its format of state in every run."""

LEFT_OUT = NEEDS_RETRIES | more_in_depth(PROVED_ELSEWHERE.keys(), set())
IN_ONE_JVM = {name: query for name, query in QUERIES.items() if name not in LEFT_OUT}


def some_batches(query: Query) -> list[Batch]:
    """The input; outside of deep runs without three batches in its middle."""
    batches = query.batches()
    return more_in_depth(batches[:3] + batches[6:], batches)


@pytest.mark.parametrize("query", IN_ONE_JVM.values(), ids=IN_ONE_JVM)
def test_a_restarted_query_gives_what_one_computation_over_all_input_gives(
    spark: "SparkSession", place: Place, query: Query, has_plugin: bool
) -> None:
    # As on HDFS: files appear by rename.
    checkpoint = f"renaming://{place.checkpoint}"
    spark.conf.set("spark.sql.shuffle.partitions", more_in_depth("2", "3"))
    some = replace(query, batches=lambda: some_batches(query))
    batches = run_in_rounds(spark, some, place, checkpoint, more_in_depth(2, ROUNDS))
    result = query.result(place.rows())
    assert result == query.expected(batches)
    assert result, "the query must have had something to say"
    if has_plugin:
        assert_complete(place.checkpoint)
