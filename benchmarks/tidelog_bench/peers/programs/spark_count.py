"""The word count on Spark Structured Streaming with its own RocksDB state store.

Invariant: one batch is one file of words, and the next one begins when a batch is committed; a
moment of the run is one at which a commit file has appeared, so its records are known exactly.
"""

import asyncio
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidelog_bench.embedded.meter import CLOCK
from tidelog_bench.peers.feed import Feed, measured
from tidelog_bench.peers.task import Task

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
    feed.fill()
    spark = _session(task)
    try:
        spark.sparkContext.setLogLevel("WARN")
        job = _Running(_start(spark, feed, task.durable), feed, task.durable / "commits")
        found = asyncio.run(measured(job, feed, task))
        job.query.stop()
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
    return builder.config(map={**settings}).getOrCreate()


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


class _Running:
    """The query, as its files of commits say."""

    ahead_s = 0.0
    least_pieces = 3
    until_durable = 0
    """What is committed is durable."""

    def __init__(self, query: StreamingQuery, feed: Feed, commits: Path) -> None:
        self.query = query
        self._feed = feed
        self._commits = commits
        self._committed = 0

    def position(self) -> int:
        committed = self.checkpoints()
        return self._feed.ends[committed - 1] if committed else 0

    async def newest_position(self) -> int:
        """The position at a commit that has just appeared."""
        before = self.checkpoints()
        while self.checkpoints() == before:
            await CLOCK.sleep(_LOOK_S)
        return self.position()

    def checkpoints(self) -> int:
        """Committed batches; raises when the query runs no more."""
        if not self.query.isActive:
            raise self.query.exception() or RuntimeError("the query has ended")
        while (self._commits / str(self._committed)).exists():
            self._committed += 1
        return self._committed
