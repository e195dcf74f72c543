"""Both phases of a steady load on Spark Structured Streaming, in one query that goes on.

Invariants: a batch has a fixed number of rows; in the running phase it may begin once its last row
is due, and the gate waits for nothing else, so a slow batch delays all after it. A row is handled
when its batch is committed, and a batch is Spark's checkpoint. Moments are of the wall clock.
"""

import math
from datetime import datetime
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tidelog.effects import hold_thread
from tidelog_bench.embedded.lateness import Handled
from tidelog_bench.embedded.meter import CLOCK, tree_peak_mb
from tidelog_bench.experiment import Reading
from tidelog_bench.peers.phases import Phase, SteadyTask, two_phases
from tidelog_bench.spark.application import Application, application, rows
from tidelog_bench.spark.job import Job

_NEVER: Final = 10**9


def run_steady(task: SteadyTask, job: Job, batch_rows: int) -> Reading:
    """Figures of both phases, and the versions that ran them."""
    with application(job, task.path / "application") as running:
        frame = _latest(running.spark, task, batch_rows)
        fill = math.ceil(task.keys / batch_rows)
        with running.started(frame, "update", task.durable, fill - 1) as query:
            running.await_batch(query, fill - 1)
            batches = _Batches(running, query, batch_rows, fill)
            figures = two_phases(
                task, lambda rate, seconds: batches.phase(rate, task.warm_s, seconds)
            )
        return Reading(figures, {"versions": running.versions})


def _latest(spark: SparkSession, task: SteadyTask, batch_rows: int) -> DataFrame:
    """The highest number of each key: the first numbers have one each, then one at random."""
    number: Column = F.col("value")
    drawn = F.pmod(F.xxhash64(number, F.lit(task.seed)), F.lit(task.keys))
    key = F.lpad(F.hex(F.when(number < task.keys, number).otherwise(drawn)), 16, "0")
    return rows(spark, batch_rows).groupBy(key.alias("key")).agg(F.max(number).alias("latest"))


class _Batches:
    """A query that is let go on batch by batch."""

    def __init__(
        self, running: Application, query: StreamingQuery, batch_rows: int, first: int
    ) -> None:
        self._running = running
        self._query = query
        self._rows = batch_rows
        self._next = first
        """The first batch of the next phase."""

    def phase(self, rate: float | None, warm_s: float, seconds: float) -> Phase:
        first, start_s = self._next, CLOCK.now_ms() / 1e3
        period_s = None if rate is None else self._rows / rate
        if period_s is None:
            self._run_freely(warm_s + seconds)
        else:
            self._run_when_due(start_s, period_s, math.ceil((warm_s + seconds) / period_s))
        handled, durations_s = list[Handled](), list[float]()
        for progress in self._query.recentProgress:
            if (batch := progress["batchId"] - first) < 0:
                continue
            begun_s, committed_s = _times_s(progress)
            numbers = range(batch * self._rows, (batch + 1) * self._rows)
            handled.append(Handled.of(committed_s, numbers))
            # It may have waited at the gate until its last row was due.
            due_s = start_s + (batch + 1) * (period_s or 0.0)
            if due_s - start_s > warm_s:
                durations_s.append(committed_s - max(begun_s, due_s))
        return Phase(handled, 0, durations_s, tree_peak_mb(), start_s)

    def _run_freely(self, seconds: float) -> None:
        self._running.end_after(_NEVER)
        hold_thread(seconds)
        reported = self._query.lastProgress
        assert reported is not None
        # One is on its way, and another one may have passed the gate meanwhile; three are a rate.
        self._end_with(max(int(reported["batchId"]), self._next) + 2)

    def _run_when_due(self, start_s: float, period_s: float, batches: int) -> None:
        for batch in range(batches):
            hold_thread(max(0.0, start_s + (batch + 1) * period_s - CLOCK.now_ms() / 1e3))
            self._running.end_after(self._next + batch)
        self._end_with(self._next + batches - 1)

    def _end_with(self, last: int) -> None:
        self._running.end_after(last)
        self._running.await_batch(self._query, last)
        self._next = last + 1


def _times_s(progress: Any) -> tuple[float, float]:
    """When a batch began and when it was committed."""
    begun_s = datetime.fromisoformat(progress["timestamp"]).timestamp()
    return begun_s, begun_s + progress["durationMs"]["triggerExecution"] / 1e3
