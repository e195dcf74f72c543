"""The word count on Spark Structured Streaming with its own RocksDB state store.

Invariant: one batch is one file of words, and the next one begins when a batch is committed; a
moment of the run is one at which a commit file has appeared, so its records are known exactly.
"""

import asyncio
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidelog_bench.embedded.meter import CLOCK, Mark, tree_mark
from tidelog_bench.peers.feed import Feed
from tidelog_bench.peers.task import Task

_AHEAD: Final = 2
"""Batches whose files wait for their turn."""
_LOOK_S: Final = 0.01
_STATE: Final = "spark.sql.streaming.stateStore"
_STORE: Final = {
    f"{_STATE}.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    # Costs a read per write, and gives a metric that nobody looks at here.
    f"{_STATE}.rocksdb.trackTotalNumberOfRows": "false",
}
PACKAGE = "pyspark"


def run(task: Task) -> dict[str, float]:
    """Count with one core and one partition; then read the checkpoint's state store."""
    words = task.words()
    feed = Feed(task.path, words, task.batch_words)
    spark = _session(task)
    try:
        spark.sparkContext.setLogLevel("WARN")
        start, end = asyncio.run(_measured(_start(spark, feed, task.durable), feed, task))
        found = task.figures(start.mark, end.mark, end.batches - start.batches)
        rows = (
            spark.read.format("statestore")
            .load(str(task.durable))
            .selectExpr("key.value AS word", "value.count AS n")
        )
        counts = {row.word: row.n for row in rows.toLocalIterator()}
        task.check(counts, words, feed.position)
    finally:
        spark.stop()
    return found


def _session(task: Task) -> SparkSession:
    builder = SparkSession.builder.master("local[1]").appName("word-count")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": "1",
        "spark.local.dir": str(task.path / "local"),
        "spark.sql.warehouse.dir": str(task.path / "warehouse"),
        **_STORE,
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _start(spark: SparkSession, feed: Feed, checkpoint: Path) -> StreamingQuery:
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(feed.input))
    return (
        lines.groupBy("value")
        .count()
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .start()
    )


class _Moment(NamedTuple):
    """A commit that was seen: batches so far, and the mark taken then."""

    batches: int
    mark: Mark


async def _measured(query: StreamingQuery, feed: Feed, task: Task) -> tuple[_Moment, _Moment]:
    """From the first commit after the warm-up to the first one after the measured time."""
    feed.fill()
    filled = await _committed(query, len(feed.ends), feed, task)
    start = await _later(query, filled, task.warm_s, feed, task)
    end = await _later(query, start, task.seconds, feed, task)
    await _commits(query, len(feed.ends), task)
    query.stop()
    return start, end


async def _later(
    query: StreamingQuery, since: _Moment, seconds: float, feed: Feed, task: Task
) -> _Moment:
    """The first commit this long after another."""
    moment = since
    while moment is since or moment.mark.wall < since.mark.wall + seconds:
        moment = await _committed(query, moment.batches + 1, feed, task)
    return moment


async def _committed(query: StreamingQuery, batches: int, feed: Feed, task: Task) -> _Moment:
    while len(feed.ends) < batches + _AHEAD:
        feed.add()
    await _commits(query, batches, task)
    return _Moment(batches, tree_mark(feed.ends[batches - 1]))


async def _commits(query: StreamingQuery, batches: int, task: Task) -> None:
    last: Any = task.durable / "commits" / str(batches - 1)
    while not last.exists():
        if not query.isActive:
            raise query.exception() or RuntimeError(f"the query ended before batch {batches - 1}")
        await CLOCK.sleep(_LOOK_S)
