"""A Spark application in this process, and queries run in it one after the other.

Invariant: requests are counted between two commits, so they belong to exactly the batches whose
durations are given.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidelog_bench.embedded.meter import CLOCK
from tidelog_bench.spark.batches import BatchWindow, Counts, parse_counts
from tidelog_bench.spark.job import SCHEME, Job
from tidelog_bench.spark.queries import QUERIES

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

    @contextlib.contextmanager
    def query(self, name: str, checkpoint: Path, last: int) -> Iterator[StreamingQuery]:
        """A query on a checkpoint below the file system that counts; it runs up to batch `last`.

        Its state stores are closed afterwards, so that they do not run during the next query.
        """
        chosen = QUERIES[name]
        self._requests.forgetCommits()
        self._counted.Network.restart()
        self.end_after(last)
        query = (
            chosen.build(self.spark)
            .writeStream.format("noop")
            .outputMode(chosen.mode)
            .option("checkpointLocation", f"{SCHEME}://{checkpoint}")
            .trigger(processingTime=f"{self.job.trigger_ms} milliseconds")
            .start()
        )
        try:
            yield query
        finally:
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
            if committed and last_batch(query) >= batch:
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


def last_batch(query: StreamingQuery) -> int:
    """The last batch that the query has reported; -1 before the first."""
    last = query.lastProgress
    return -1 if last is None else int(last["batchId"])


@contextlib.contextmanager
def application(job: Job, directory: Path) -> Iterator[Application]:
    """Start an application; one at a time in a process, all of them in one JVM."""
    builder = SparkSession.builder.appName(f"{job.store}, {job.partitions} partitions")
    for key, value in job.settings(directory).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        yield Application(spark, job)
    finally:
        spark.stop()


_AT_LEAST: Final = 3


@dataclass(frozen=True, slots=True)
class Batches:
    """`warm` batches, then `batches` that count: fewer of these, but at least three, if they take
    `limit_s`. The batches before those that count are as many for every store.
    """

    warm: int
    batches: int
    limit_s: float

    def measure(self, application: Application, name: str, checkpoint: Path) -> BatchWindow:
        """Run a query from an empty checkpoint."""
        first, last = self.warm, self.warm + self.batches - 1
        with application.query(name, checkpoint, last) as query:
            application.await_batch(query, first - 1)
            if not application.await_batch(query, last, self.limit_s):
                # The batch that runs is the last: a query that is stopped within one says much.
                last = min(last, max(last_batch(query) + 1, first + _AT_LEAST - 1))
                application.end_after(last)
                application.await_batch(query, last)
            reported = query.recentProgress
        return BatchWindow(
            progress=[one for one in reported if first <= one["batchId"] <= last],
            marks=[application.counts_at(batch) for batch in range(first - 1, last + 1)],
            cpu_ms=application.cpu_ms_at(last) - application.cpu_ms_at(first - 1),
        )
