"""What is no longer needed is removed while somebody still reads it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.spark.support.census import assert_complete
from tests.spark.support.faults import SEGMENT, Faults
from tests.spark.support.place import Place
from tests.spark.support.running import add, finish
from tests.spark.support.zoo.aggregations import TOTALS
from tests.spark.support.zoo.query import events, single

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.plugin_only

BATCHES = single(events(seed=8, batches=54, per_batch=10))


def segments(place: Place) -> set[str]:
    return {path.name for path in (place.checkpoint / "_tidelog/segments").glob("*.seg")}


def outcome(work: Callable[[], object]) -> object:
    """What the work returns, or what it raises."""
    try:
        return work()
    except Exception as error:
        return error


def test_a_reader_whose_batch_is_removed_under_it_reads_the_truth_or_an_error(
    spark: "SparkSession", faulty: Faults, place: Place
) -> None:
    checkpoint = f"faulty://{place.checkpoint}"
    spark.conf.set("spark.sql.shuffle.partitions", "1")  # the reader takes one of two task slots
    add(place, BATCHES[:6])
    finish(spark, TOTALS, place, checkpoint)
    expected = TOTALS.expected(BATCHES[:6])
    # The JVM remembers what it wrote, under the name it wrote it by: the reader shall not.
    reading = f"renaming://{place.checkpoint}"
    held = faulty.add("hold", "open", SEGMENT, times=1)

    def read() -> object:
        frame = spark.read.format("statestore").option("batchId", 5).load(reading)
        rows = frame.selectExpr("key.k", "value.count n", "value.sum", "value.max").collect()
        return {(row.k,): row.asDict() for row in rows}

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(outcome, read)
        try:
            held.await_fired()
            before = segments(place)
            done = 6
            while before & segments(place) and done < len(BATCHES):
                add(place, BATCHES[done : done + 12])
                done += 12
                finish(spark, TOTALS, place, checkpoint)
                assert_complete(place.checkpoint)
            assert not before & segments(place), "the test needs the segments to be gone"
        finally:
            held.release()
        found = reader.result()
    if isinstance(found, Exception):
        assert "segment" in str(found) or "FileNotFound" in str(found), found
    else:
        assert found == expected
    assert TOTALS.result(place.rows()) == TOTALS.expected(BATCHES[:done])
