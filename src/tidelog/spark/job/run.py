"""A job as a query of Spark Structured Streaming, from its start to its end."""

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidelog.effects import Effects
from tidelog.errors import require
from tidelog.runtime.graph import Job
from tidelog.spark.handover.begin import Beginning
from tidelog.spark.handover.document import QueryDirectory
from tidelog.spark.handover.sources import described_sources
from tidelog.spark.job.descriptions import KEY_GROUPS, describe
from tidelog.spark.job.frames import LATE_RECORDS, Frames, SourceFrame
from tidelog.spark.job.plan import JobPlan
from tidelog.spark.job.sinks import Ledger, SinkWriters
from tidelog.spark.job.sources import SourceOptions, source_frame
from tidelog.spark.processor.transform import check_modules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_S: Final = 5
"""How often the progress is looked at, of which Spark keeps that of 100 batches."""
_IDLE_BATCHES: Final = "spark.sql.streaming.noDataMicroBatches.enabled"


class JobQuery:
    """A job that runs as a query."""

    def __init__(self, query: "StreamingQuery", writers: SinkWriters, effects: Effects) -> None:
        self.query = query
        """Spark's own object: progress, its exception, `stop`."""
        self._writers = writers
        self._effects = effects
        self._late: Counter[str] = Counter()
        self._counted_batch = -1

    @property
    def late_records(self) -> dict[str, int]:
        """By operator the records that came too late since the query has started, as of the last
        batch that has ended; Spark's own progress has those of each batch.
        """
        for progress in self.query.recentProgress:
            batch, metrics = progress["batchId"], progress["observedMetrics"]
            if batch <= self._counted_batch or not metrics:
                continue
            self._counted_batch = batch
            for name, row in metrics.items():
                what, _, operator = name.partition(":")
                if what == LATE_RECORDS and row[what]:
                    self._late[operator] += row[what]
        return dict(self._late)

    def wait(self, seconds: int | None = None) -> bool:
        """Wait until the query has ended, or for so long; whether it has. Raises its error."""
        clock, has_ended = self._effects.clock, False
        end = math.inf if seconds is None else clock.monotonic() + seconds
        try:
            while not has_ended and (left := end - clock.monotonic()) > 0:
                has_ended = bool(self.query.awaitTermination(math.ceil(min(left, _LOOK_S))))
                _ = self.late_records  # Spark forgets old batches
        except BaseException:
            self._close()
            raise
        if has_ended:
            self._close()
        return has_ended

    def stop(self) -> None:
        """Stop the query; another start continues with the batch that was under way."""
        self.query.stop()
        self._close()

    def _close(self) -> None:
        self._writers.close()
        self._effects.offload.close()


def start_query(
    job: Job,
    session: "SparkSession",
    *,
    directory: QueryDirectory,
    available_now: bool,
    trigger: str | None,
    sources: SourceOptions,
    beginning: Beginning | None,
) -> JobQuery:
    """Start the query of `tidelog.spark.run`, which goes on with a job: `beginning`."""
    check_modules()
    plan = JobPlan(job)
    complete = bool(plan.sources) and bool(plan.sinks)
    require(f"job {job.name!r}", "none of one", complete, "at least one source and one sink")
    handover = None if beginning is None else beginning.handover
    if available_now:
        sources = msgspec.structs.replace(sources, records_per_batch=None)
    frames: dict[str, SourceFrame] = {}
    for node in plan.sources:
        frames[node.id] = source_frame(session, node, sources, handover, directory)
    descriptions_before = directory.descriptions()
    initial = {} if beginning is None else beginning.initial(session)
    descriptions = describe(plan.operators, descriptions_before, initial)
    output = Frames(plan, frames, descriptions, initial).output()
    branches: dict[int, str] = {}
    for sink in plan.sinks:
        branches |= dict.fromkeys(plan.branches_of(sink), sink.id)
    effects = Effects()
    key_groups = max((one.key_groups for one in descriptions.values()), default=KEY_GROUPS)
    directory.begin(described_sources(job, key_groups))
    writers = SinkWriters(Ledger(directory), job.name, branches, job.record_types)
    try:
        writers.open(plan.sinks, effects, handover, is_new=not descriptions_before)
        directory.keep_descriptions(descriptions)
        writer = output.writeStream.outputMode("append").foreachBatch(writers.write)
        writer = writer.option("checkpointLocation", directory.location).queryName(job.name)
        if available_now:
            writer = writer.trigger(availableNow=True)
        elif trigger is not None:
            writer = writer.trigger(processingTime=trigger)
        with _Ending(session, plan, available_now=available_now):
            query = writer.start()
    except BaseException:
        writers.close()
        effects.offload.close()
        raise
    return JobQuery(query, writers, effects)


class _Ending:
    """A context in which a query starts that is to end: with timers of processing time Spark would
    begin batches without input for ever.
    """

    def __init__(self, session: "SparkSession", plan: JobPlan, *, available_now: bool) -> None:
        self._conf: Any = session.conf if available_now and plan.needs_clock else None

    def __enter__(self) -> None:
        if self._conf is not None:
            self._before = self._conf.get(_IDLE_BATCHES, None)
            self._conf.set(_IDLE_BATCHES, "false")

    def __exit__(self, *_: object) -> None:
        if self._conf is not None:
            if self._before is None:
                self._conf.unset(_IDLE_BATCHES)
            else:
                self._conf.set(_IDLE_BATCHES, self._before)
