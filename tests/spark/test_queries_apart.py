"""The queries of one application neither wait for each other nor leave anything behind."""

import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.support.faults import SEGMENT, Faults
from tests.spark.support.place import Place
from tests.spark.support.running import add, finish, start
from tests.spark.support.session import PATIENCE_S
from tests.spark.support.zoo.aggregations import TOTALS
from tests.support.depth import more_in_depth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.plugin_only

QUERIES = more_in_depth(4, 200)
WHILE_IT_HANGS = 3
"""Queries that end before the one that hangs gives up, after `barrier.timeout`."""
BATCHES = TOTALS.batches()[:3]


def known_to_the_driver(spark: "SparkSession") -> str:
    """The checkpoints of which the plug-in's driver side still knows something, as a text."""
    jvm: Any = spark._jvm
    return str(jvm.tidelog.spark.driver.DriverSide.current().get().known().mkString(" "))


def finish_another(spark: "SparkSession", place: Place) -> None:
    add(place, BATCHES)
    finish(spark.newSession(), TOTALS, place, checkpoint=f"faulty://{place.checkpoint}")
    assert TOTALS.result(place.rows()) == TOTALS.expected(BATCHES)


def test_a_store_that_hangs_holds_up_its_own_query_alone_and_what_has_ended_is_forgotten(
    spark: "SparkSession", faulty: Faults, tmp_path: Path
) -> None:
    held = Place(tmp_path / "held")
    add(held, BATCHES)
    hanging = faulty.add("hold", "put", rf"/held/.*{SEGMENT}")
    waiting = start(spark.newSession(), TOTALS, held, checkpoint=f"faulty://{held.checkpoint}")
    hanging.await_fired()
    others = iter([Place(tmp_path / f"other-{number}") for number in range(QUERIES)])
    for other in itertools.islice(others, WHILE_IT_HANGS):
        finish_another(spark, other)
    assert held.committed() == []
    hanging.release()
    waiting.awaitTermination()
    assert TOTALS.result(held.rows()) == TOTALS.expected(BATCHES)
    for other in others:
        finish_another(spark, other)
    deadline = time.monotonic() + PATIENCE_S
    while str(tmp_path) in (known := known_to_the_driver(spark)):
        assert time.monotonic() < deadline, f"still known: {known}"
        time.sleep(0.1)
