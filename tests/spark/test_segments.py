"""A small batch is one segment of each executor, however far apart its tasks are."""

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.spark.support.place import Place
from tests.spark.support.running import add, finish
from tests.spark.support.zoo.aggregations import TOTALS
from tests.spark.support.zoo.query import Query, Sources, events, single

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.plugin_only

BATCHES = single(events(seed=12, batches=5, per_batch=30))
LINGERS = 5
"""How many lingers a task goes on after its state is written."""


def slow_totals(sources: Sources) -> "DataFrame":
    """Totals, by tasks that go on for long after they have closed their changelogs."""

    def go_on(rows: "Iterator[RecordBatch]") -> "Iterator[RecordBatch]":
        yield from rows
        time.sleep(0.1 * LINGERS)

    totals = TOTALS.build(sources)
    return totals.mapInArrow(go_on, totals.schema)


SLOW_TOTALS = Query(
    "slow_totals", slow_totals, lambda: BATCHES, TOTALS.expected, mode="update", key=("k",)
)


def segments_of(place: Place, batch: int) -> int:
    line = (place.checkpoint / "commits" / str(batch)).read_text().split("\n")[2]
    return len(json.loads(line)["body"]["segments"])


def test_tasks_that_are_further_apart_than_the_linger_share_a_segment(
    spark: "SparkSession", place: Place
) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "100")
    add(place, BATCHES)
    finish(spark, SLOW_TOTALS, place)
    assert SLOW_TOTALS.result(place.rows()) == SLOW_TOTALS.expected(BATCHES)
    counts = sorted(segments_of(place, batch) for batch in place.committed())
    # On a machine that is busy with other things a batch may pause where it has never before.
    assert counts[len(counts) // 2] == 1, counts


def test_a_query_without_state_needs_no_log(spark: "SparkSession", place: Place) -> None:
    batches = TOTALS.batches()
    add(place, batches)
    frame = Sources(spark, place, TOTALS.schema).stream().select("k")
    writer = frame.writeStream.format("noop").outputMode("append")
    writer = writer.option("checkpointLocation", str(place.checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert place.committed()[-1] == len(batches) - 1
    assert not (place.checkpoint / "_tidelog").exists()
