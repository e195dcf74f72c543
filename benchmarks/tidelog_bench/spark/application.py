"""A Spark application in this process, and queries run in it one after the other, over a source
that costs next to nothing.

Invariants: what a batch holds depends on its number alone, so runs and restarts are equal; requests
are counted between two commits, so they belong to exactly the batches whose durations are given;
a query that goes on between trials waits after a batch, and asks the store for nothing meanwhile.
"""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tidelog_bench.embedded.meter import CLOCK
from tidelog_bench.spark.batches import BatchWindow, Counts, difference, parse_counts
from tidelog_bench.spark.job import SCHEME, Job

_SOURCE_PARTITIONS: Final = 2


def rows(spark: SparkSession, count: int) -> DataFrame:
    """`count` rows per batch: `value` counts on, `timestamp` advances by a second per batch."""
    return (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", count)
        .option("numPartitions", _SOURCE_PARTITIONS)
        .load()
    )


def aggregation(spark: SparkSession) -> DataFrame:
    """10,000 rows over 20,011 keys of 200 characters."""
    key = F.rpad((F.col("value") * 7919 % 20_011).cast("string"), 200, ".")
    return rows(spark, 10_000).groupBy(key.alias("word")).count()


def long_keys(spark: SparkSession) -> DataFrame:
    """21,000 rows, each of a key of 1,024 characters that do not compress; the same keys in every
    batch. With two partitions each has a changelog of 10 MB.
    """
    number = (F.col("value") % 21_000).cast("string")
    key = F.concat(*(F.sha2(F.concat(number, F.lit(f" {part}")), 512) for part in range(8)))
    return rows(spark, 21_000).groupBy(key.alias("word")).count()


def join(spark: SparkSession) -> DataFrame:
    """2,000 rows on each side; a row meets one of the same batch."""
    left, right = (
        rows(spark, 2_000)
        .withColumnsRenamed({"value": f"{side}_value", "timestamp": f"{side}_time"})
        .withWatermark(f"{side}_time", "10 seconds")
        for side in ("left", "right")
    )
    near = F.expr(
        "left_value = right_value AND right_time >= left_time"
        " AND right_time <= left_time + INTERVAL 5 SECONDS"
    )
    return left.join(right, near)


QUERIES: Final[dict[str, tuple[Callable[[SparkSession], DataFrame], str]]] = {
    "aggregation": (aggregation, "update"),
    "long_keys": (long_keys, "update"),
    "join": (join, "append"),
}
"""Queries and their output modes."""

_SLICE_S: Final = 0.5
_TIMEOUT_S: Final = 1800.0


class Application:
    """A running session, and what its JVM counts."""

    def __init__(self, spark: SparkSession, job: Job) -> None:
        self.spark = spark
        self.job = job
        jvm: Any = spark._jvm
        java = jvm.java.lang.System.getProperty("java.version")
        self.versions = {"spark": spark.version, "java": str(java)}
        self._counted = jvm.tidelog.benchmark
        self._requests = self._counted.Requests
        self._between = jvm.org.apache.spark.benchmark.Application

    def query(
        self, name: str, checkpoint: Path, last: int
    ) -> contextlib.AbstractContextManager[StreamingQuery]:
        """One of `QUERIES`, as `started` starts it."""
        build, mode = QUERIES[name]
        return self.started(build(self.spark), mode, checkpoint, last)

    @contextlib.contextmanager
    def started(
        self, frame: DataFrame, mode: str, checkpoint: Path, last: int
    ) -> Iterator[StreamingQuery]:
        """A query on a checkpoint below the file system that counts; it runs up to batch `last`.

        Its state stores are closed afterwards, so that they do not run during the next query.
        """
        self._requests.forgetCommits()
        self._counted.Network.restart()
        self.end_after(last)
        query = (
            frame.writeStream.format("noop")
            .outputMode(mode)
            .option("checkpointLocation", f"{SCHEME}://{checkpoint}")
            .trigger(processingTime=f"{self.job.trigger_ms} milliseconds")
            .start()
        )
        try:
            yield query
        finally:
            self._counted.Network.end()
            query.stop()
            self._between.forget()

    def end_after(self, last: int) -> None:
        """Let the query wait after a batch: nothing of the next one is written."""
        self._counted.Gate.endAfter(last)

    def await_batch(self, query: StreamingQuery, batch: int, timeout_s: float = _TIMEOUT_S) -> bool:
        """Whether the batch is committed and reported in time; the query's error if it failed."""
        end = CLOCK.monotonic() + timeout_s
        while (left_s := end - CLOCK.monotonic()) > 0:
            active = query.isActive
            committed = self._requests.awaitCommit(batch, round(min(_SLICE_S, left_s) * 1e3))
            reported = query.lastProgress
            if committed and reported is not None and int(reported["batchId"]) >= batch:
                return True
            if not active:
                raise query.exception() or RuntimeError(f"the query ended before batch {batch}")
        return False

    def counts_now(self) -> Counts:
        """All requests of the JVM so far."""
        return parse_counts(self._requests.now())

    def counts_at(self, batch: int) -> Counts:
        """All requests of the JVM until the batch was committed."""
        return parse_counts(self._requests.at(batch))

    def cpu_ms_at(self, batch: int) -> float:
        """Processor time that the JVM had taken by then."""
        return float(self._requests.cpuMsAt(batch))


@contextlib.contextmanager
def application(job: Job, directory: Path) -> Iterator[Application]:
    """Start an application; one at a time in a process, all of them in one JVM: one that `kept` has
    ends.
    """
    while _KEPT:
        _KEPT.popitem()[1][0].close()
    builder = SparkSession.builder.appName(f"{job.store}, {job.partitions} partitions")
    spark = builder.config(map={**job.settings(directory)}).getOrCreate()
    try:
        yield Application(spark, job)
    finally:
        spark.stop()


@dataclass
class Measured:
    """A query that is measured in rounds of batches; between them it waits after the last one."""

    application: Application
    query: StreamingQuery
    next: int = 0

    def skip(self, batches: int) -> None:
        """Run batches that do not count."""
        self.next += batches
        self.application.end_after(self.next - 1)
        self.application.await_batch(self.query, self.next - 1)

    def round(self, batches: int) -> BatchWindow:
        """Run batches that count, after one that does not: it has what was due while all waited."""
        application = self.application
        first, last = self.next + 1, self.next + batches
        self.skip(1 + batches)
        return BatchWindow(
            progress=[one for one in self.query.recentProgress if first <= one["batchId"] <= last],
            counts=difference(application.counts_at(last), application.counts_at(first - 1)),
            cpu_ms=application.cpu_ms_at(last) - application.cpu_ms_at(first - 1),
        )


def kept(job: Job, directory: Path, query: str, warm: int) -> Measured:
    """The query that goes on in this directory, in an application of its own; the first call starts
    both and runs `warm` batches.
    """
    # Trials of a cell differ in their seeds alone, and share the query.
    asked = replace(job, seed=0), directory, query
    if asked not in _KEPT:
        # Where all trials share a process, another one may have ended a query that was here.
        shutil.rmtree(directory / query, ignore_errors=True)
        stack = contextlib.ExitStack()
        running = stack.enter_context(application(job, directory / "application"))
        started = stack.enter_context(running.query(query, directory / query, warm - 1))
        _KEPT[asked] = stack, Measured(running, started)
        _KEPT[asked][1].skip(warm)
    return _KEPT[asked][1]


_KEPT: dict[tuple[Job, Path, str], tuple[contextlib.ExitStack, Measured]] = {}
"""At most one: a JVM has one application at a time."""
