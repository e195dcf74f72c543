"""The views in a real Spark have the rows that the reader without Spark has."""

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.cli import lay_out
from tests.support.jobs import filled
from tests.unit.spark.source.reading import bag, read
from tests.unit.spark.synthetic import Synthetic
from tidelog.spark import TidelogDataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(autouse=True)
def registered(spark: "SparkSession") -> None:
    spark.dataSource.register(TidelogDataSource)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lay_out(tmp_path_factory.mktemp("job"), filled())


@pytest.fixture(scope="module")
def query(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Synthetic(operators=2, stores=("default", "left"), piece_bytes=90)
    made.stock(1).virtual(3).failed_attempt()
    return lay_out(tmp_path_factory.mktemp("query"), made.objects)


def expected(location: Path, **options: Any) -> list[dict[str, Any]]:
    found = [plain(row) for row in read(location, **options)]
    assert found
    return found


@pytest.mark.parametrize("view", ["checkpoints", "objects", "blocks", "changes", "state"])
def test_a_view_of_a_store_has_the_rows_of_the_reader_without_spark(
    spark: "SparkSession", job: Path, view: str
) -> None:
    options = {"view": view, **({"decode": "true"} if view in ("changes", "state") else {})}
    assert bag(rows(load(spark, job, **options))) == bag(expected(job, **options))


@pytest.mark.parametrize("view", ["checkpoints", "objects"])
def test_a_view_of_a_query_has_the_rows_of_the_reader_without_spark(
    spark: "SparkSession", query: Path, view: str
) -> None:
    assert bag(rows(load(spark, query, view=view))) == bag(expected(query, view=view))


def test_views_can_be_queried_in_sql(spark: "SparkSession", job: Path) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW counted USING tidelog "
        f"OPTIONS (path '{job}', view 'state', decode 'true')"
    )
    found = spark.sql(
        "SELECT key_json AS key, get_json_object(value_json, '$.count') AS count "
        "FROM counted WHERE state = 'count'"
    ).collect()
    assert {row.key for row in found} >= {'"word-1"', '"word-39"'}
    assert {row.key: int(row["count"]) for row in found} == {
        row["key_json"]: _count(row)
        for row in expected(job, view="state", decode="true")
        if row["state"] == "count"
    }


def _count(row: dict[str, Any]) -> int:
    return int(json.loads(row["value_json"])["count"])


def test_errors_reach_the_user_with_the_next_action(
    spark: "SparkSession", job: Path, tmp_path: Path
) -> None:
    for options, message in (
        ({"view": "tables"}, "option view of the tidelog data source; expected one of"),
        ({"view": "changes", "checkpoint": "77"}, "checkpoint 77 of store"),
        ({"view": "changes", "oparator": "a"}, "option oparator"),
    ):
        with pytest.raises(Exception, match=message) as raised:
            load(spark, job, **options).collect()
        assert "Next: " in str(raised.value)
    with pytest.raises(Exception, match="checkpoints/ of a tidelog job"):
        load(spark, tmp_path, view="checkpoints").collect()


Row = dict[str, Any]


def load(spark: "SparkSession", location: Path, **options: object) -> "DataFrame":
    """A batch load."""
    reader = spark.read.format("tidelog")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(str(location))


def rows(frame: "DataFrame") -> list[Row]:
    """What a frame holds."""
    return [plain(row.asDict()) for row in frame.collect()]


def plain(row: Row) -> Row:
    """Values that compare alike, whoever has read them: bytes, and times as seconds since 1970."""
    return {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    return value.timestamp() if isinstance(value, datetime) else value
