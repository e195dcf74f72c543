"""Checkpoints change hands between Spark's own store and the plug-in, and their number of
partitions."""

import json
from typing import TYPE_CHECKING

import pytest

from tests.spark.support.census import assert_complete
from tests.spark.support.place import Place
from tests.spark.support.running import add, finish
from tests.spark.support.zoo.all import QUERIES
from tests.support.cli import tidelog
from tidelog.spark.plugin.settings import FILE_MANAGER, FORMAT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SPARKS_OWN_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
)
SWITCHED = [
    "totals",
    "tumbling_windows",
    "inner_join_format_2",
    "inner_join_format_4",
    "transform_with_state_in_pandas",
]


def without_plugin(spark: "SparkSession", **more: str) -> "SparkSession":
    session = spark.newSession()
    session.conf.set(FILE_MANAGER, SPARKS_OWN_MANAGER)
    for key, value in more.items():
        session.conf.set(key, value)
    return session


def changelog_files(place: Place) -> set[str]:
    return {path.name for path in (place.checkpoint / "state").rglob("[0-9]*.changelog")}


@pytest.mark.plugin_only
@pytest.mark.parametrize("name", SWITCHED)
def test_a_stock_checkpoint_goes_on_with_the_plugin(
    spark: "SparkSession", place: Place, name: str
) -> None:
    query = QUERIES[name]
    batches = query.batches()
    add(place, batches[:4])
    finish(without_plugin(spark), query, place)
    assert changelog_files(place)
    for part in (batches[4:7], batches[7:]):
        add(place, part)
        finish(spark.newSession(), query, place)
    assert query.result(place.rows()) == query.expected(batches)
    assert list((place.checkpoint / "_tidelog" / "segments").glob("*.seg"))


@pytest.mark.plugin_only
def test_a_stock_checkpoint_without_ids_stays_one_and_goes_on(
    spark: "SparkSession", place: Place
) -> None:
    query = QUERIES["totals"]
    batches = query.batches()
    add(place, batches[:4])
    finish(without_plugin(spark, **{FORMAT: "1"}), query, place)
    add(place, batches[4:])
    finish(spark, query, place)
    assert query.result(place.rows()) == query.expected(batches)


@pytest.mark.plugin_only
@pytest.mark.parametrize("name", SWITCHED)
def test_an_exported_checkpoint_goes_on_without_the_plugin(
    spark: "SparkSession", place: Place, name: str
) -> None:
    query = QUERIES[name]
    batches = query.batches()
    for part in (batches[:3], batches[3:5]):
        add(place, part)
        finish(spark.newSession(), query, place)
    assert_complete(place.checkpoint)
    export(place, "--remove-log")
    assert not list((place.checkpoint / "_tidelog").rglob("[!.]*.*"))
    add(place, batches[5:])
    finish(without_plugin(spark), query, place)
    assert query.result(place.rows()) == query.expected(batches)


def export(place: Place, *options: str) -> None:
    done = tidelog("spark", "export", f"file://{place.checkpoint}", *options)
    assert done.exit_code == 0, done.output


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
