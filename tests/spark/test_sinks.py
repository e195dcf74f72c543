"""Sinks other than foreachBatch, and several queries in one application."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.support.census import assert_complete
from tests.spark.support.place import Place
from tests.spark.support.running import ROUNDS, add, finish, rounds, start
from tests.spark.support.zoo.aggregations import TOTALS
from tests.spark.support.zoo.all import QUERIES
from tests.spark.support.zoo.query import Sources, by_key, events, ordered, single
from tests.support.depth import more_in_depth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOWS = QUERIES["tumbling_windows"]
OTHER_TOTALS = replace(TOTALS, name="other_totals", batches=lambda: single(events(seed=31)))


def test_a_file_sink_holds_every_row_once(
    spark: "SparkSession", place: Place, has_plugin: bool
) -> None:
    batches = WINDOWS.batches()
    output = str(place.root / "files")

    for part in rounds(batches, more_in_depth(2, ROUNDS)):
        add(place, part)
        frame = WINDOWS.build(Sources(spark, place, WINDOWS.schema))
        writer = frame.writeStream.format("json").outputMode("append")
        writer = writer.option("checkpointLocation", str(place.checkpoint))
        writer.trigger(availableNow=True).start(output).awaitTermination()

    rows = [row.asDict() for row in spark.read.json(output).collect()]
    assert WINDOWS.result(ordered(rows)) == WINDOWS.expected(batches)
    if has_plugin:
        assert_complete(place.checkpoint)


def test_a_memory_sink_in_complete_mode_continues_from_its_checkpoint(
    spark: "SparkSession", place: Place
) -> None:
    batches = TOTALS.batches()

    for part in rounds(batches, more_in_depth(2, ROUNDS)):
        add(place, part)
        frame = TOTALS.build(Sources(spark, place, TOTALS.schema))
        writer = frame.writeStream.format("memory").queryName("totals").outputMode("complete")
        writer = writer.option("checkpointLocation", str(place.checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    rows = [row.asDict() for row in spark.table("totals").collect()]
    assert by_key(rows, "k") == TOTALS.expected(batches)


def test_two_queries_of_one_application_keep_their_states_apart(
    spark: "SparkSession", tmp_path: Path, has_plugin: bool
) -> None:
    queries = [TOTALS, more_in_depth(OTHER_TOTALS, QUERIES["inner_join_format_3"])]
    places = [Place(tmp_path / query.name) for query in queries]
    inputs = [query.batches()[: more_in_depth(6, None)] for query in queries]

    for parts in zip(*(rounds(batches, 2) for batches in inputs), strict=True):
        started = []
        for query, place, part in zip(queries, places, parts, strict=True):
            add(place, part)
            started.append(start(spark, query, place))
        for running in started:
            running.awaitTermination()

    for query, place, batches in zip(queries, places, inputs, strict=True):
        assert query.result(place.rows()) == query.expected(batches)
        if has_plugin:
            assert_complete(place.checkpoint)


def test_a_query_without_state_needs_no_log(spark: "SparkSession", place: Place) -> None:
    batches = TOTALS.batches()
    add(place, batches)

    frame = Sources(spark, place, TOTALS.schema).stream().select("k")
    writer = frame.writeStream.format("noop").outputMode("append")
    writer = writer.option("checkpointLocation", str(place.checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()

    assert place.committed()[-1] == len(batches) - 1
    assert not (place.checkpoint / "_tidelog").exists()


def test_an_input_that_ends_and_grows_again_is_continued(
    spark: "SparkSession", place: Place
) -> None:
    batches = TOTALS.batches()[: more_in_depth(3, 5)]

    for batch in batches:
        add(place, [batch])
        finish(spark, TOTALS, place)

    assert TOTALS.result(place.rows()) == TOTALS.expected(batches)
