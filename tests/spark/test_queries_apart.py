"""The queries of one application neither wait for each other nor leave anything behind."""

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

QUERIES = more_in_depth(3, 200)
BATCHES = TOTALS.batches()[:3]


def known_to_the_driver(spark: "SparkSession") -> str:
    """The checkpoints of which the plug-in's driver side still knows something, as a text."""
    jvm: Any = spark._jvm
    return str(jvm.tidelog.spark.driver.DriverSide.current().get().known().mkString(" "))


def test_a_store_that_hangs_holds_up_its_own_query_alone_and_what_has_ended_is_forgotten(
    spark: "SparkSession", faulty: Faults, tmp_path: Path
) -> None:
    held = Place(tmp_path / "held")
    add(held, BATCHES)
    hanging = faulty.add("hold", "put", rf"/held/.*{SEGMENT}")
    waiting = start(spark.newSession(), TOTALS, held, checkpoint=f"faulty://{held.checkpoint}")
    hanging.await_fired()

    for number in range(QUERIES):
        other = Place(tmp_path / f"other-{number}")
        add(other, BATCHES)
        finish(spark.newSession(), TOTALS, other, checkpoint=f"faulty://{other.checkpoint}")
        assert TOTALS.result(other.rows()) == TOTALS.expected(BATCHES)
    assert held.committed() == []

    hanging.release()
    waiting.awaitTermination()
    assert TOTALS.result(held.rows()) == TOTALS.expected(BATCHES)
    deadline = time.monotonic() + PATIENCE_S
    while str(tmp_path) in (known := known_to_the_driver(spark)):
        assert time.monotonic() < deadline, f"still known: {known}"
        time.sleep(0.1)
