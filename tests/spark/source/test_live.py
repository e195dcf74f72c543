"""The checkpoint of a query is read while its batches run and Spark cleans up behind them."""

import re
import time
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PythonException

from tests.spark.source.loading import Row, load, rows
from tests.spark.support.place import Place
from tests.spark.support.running import add, rounds, start
from tests.spark.support.session import PATIENCE_S
from tests.spark.support.zoo.aggregations import TOTALS
from tests.spark.support.zoo.query import events, single
from tests.support.cli import tidelog
from tests.support.depth import more_in_depth
from tidelog.spark import TidelogDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.plugin_only

DROPPED = re.compile("has dropped it since, or it is lost|option slot, checkpoint")


@pytest.fixture(autouse=True)
def registered(spark: "SparkSession") -> None:
    spark.dataSource.register(TidelogDataSource)


def test_every_view_is_whole_while_batches_run(spark: "SparkSession", place: Place) -> None:
    batches = single(events(seed=81, batches=more_in_depth(9, 24), per_batch=10))
    place.source("events")
    query = start(spark, TOTALS, place, follow=True)
    done = 0
    for part in rounds(batches, more_in_depth(2, 6)):
        add(place, part)
        await_commit(query, place, done)  # the others of the part run while it is read
        look(spark, place)
        done += len(part)
    await_commit(query, place, done - 1)
    query.stop()
    changes = rows(load(spark, place.checkpoint, view="changes"))
    assert {row["slot"] for row in changes} <= set(place.committed())
    assert {row["op"] for row in changes} == {"put"}


def await_commit(query: "StreamingQuery", place: Place, batch: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not (committed := place.committed()) or committed[-1] < batch:
        assert time.monotonic() < deadline and query.exception() is None
        time.sleep(0.01)


def look(spark: "SparkSession", place: Place) -> None:
    """Read every view once; retention may win a race for `changes`, and then says so."""
    before = place.committed()
    checkpoints = rows(load(spark, place.checkpoint, view="checkpoints"))
    assert {row["kind"] for row in checkpoints} == {"checkpoint"}
    assert all(row["error"] is None for row in checkpoints)
    assert max(row["slot"] for row in checkpoints) >= before[-1]
    objects = rows(load(spark, place.checkpoint, view="objects"))
    assert len({row["name"] for row in objects}) == len(objects)
    needed = [row for row in objects if row["kind"] == "segment" and row["referenced_by"]]
    assert needed and all(row["orphan"] is False for row in needed)
    blocks = rows(load(spark, place.checkpoint, view="blocks"))
    assert {row["kind"] for row in blocks} == {"spark-changelog"}
    assert max(slot for row in blocks for slot in row["referenced_by"]) >= before[-1]
    try:
        assert_whole(rows(load(spark, place.checkpoint, view="changes")))
    except PythonException as error:
        assert DROPPED.search(str(error)), error
    checked = tidelog("verify", place.checkpoint, "--engine", "local")
    assert checked.exit_code == 0, checked.output


def assert_whole(changes: list[Row]) -> None:
    """Of every changelog all records, from the first one on."""
    places: dict[tuple[int, str, int], list[int]] = {}
    for row in changes:
        changelog = row["slot"], row["operator"], row["subtask"]
        places.setdefault(changelog, []).append(row["position"])
    assert places
    for positions in places.values():
        assert sorted(positions) == list(range(len(positions)))
