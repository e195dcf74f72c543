"""Spark's reader of a stream: the changes of a running job or query.

Invariants: all progress is in the offsets that Spark keeps, so a restarted stream goes on exactly
where its last committed batch ended; a store is asked at most once per poll interval.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from tidelog.effects import Clock, SystemClock
from tidelog.spark.checkpoint.location import find_layout
from tidelog.spark.source.job import follow as job
from tidelog.spark.source.offsets import Document, JobOffset, QueryOffset, following, layout_of
from tidelog.spark.source.options import Options
from tidelog.spark.source.parts import Part, Request, Session, bundled, connected
from tidelog.spark.source.query import follow as query
from tidelog.spark.source.reader import read_part
from tidelog.storage.port import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # Spark 4.1, where such a trigger runs one batch
    SupportsTriggerAvailableNow = object  # type: ignore[assignment, misc]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows view `changes`."""

    def __init__(self, request: Request, clock: Clock | None = None) -> None:
        self.request = request
        self._clock = clock or SystemClock()
        self._asked: tuple[float, Document] | None = None
        """When the store was asked, in seconds of a monotonic clock, and its answer."""
        self._last: Document | None = None
        self._target: Document | None = None

    def initialOffset(self) -> Document:
        """Where option startingSlot says; raises what reading the store raises."""
        with self._connected() as session:
            return session.run(_initial(session.store, self.request.options))

    def latestOffset(self, start: Document | None = None, limit: object = None) -> Document:
        """The newest position, or `start` if there are no changes after it; raises RestoreError
        when the store has gone back to before it.

        Spark 4.1 passes neither `start` nor a limit; no limit is ever asked for.
        """
        found = self._target or self._polled()
        before = self._last if start is None else start
        self._last = found if before is None else following(before, found)
        return self._last

    def prepareForTriggerAvailableNow(self) -> None:
        """Read up to what is there now, and no further."""
        self._target = self._newest()

    def partitions(self, start: Document, end: Document) -> list[InputPartition]:
        """What to read between two offsets; raises ConfigError for offsets that are none, and
        RestoreError when changes are gone.
        """
        with self._connected() as session:
            parts = session.run(_plan(session.store, self.request, start, end))
        return [
            InputPartition(part) for part in bundled(parts, self.request.options.partition_bytes)
        ]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The changes of a partition."""
        return read_part(self.request, partition)

    def _polled(self) -> Document:
        now = self._clock.monotonic()
        if self._asked is None or now - self._asked[0] >= self.request.options.poll_ms / 1000:
            self._asked = now, self._newest()
        return self._asked[1]

    def _newest(self) -> Document:
        with self._connected() as session:
            return session.run(_latest(session.store, self.request.options))

    def _connected(self) -> AbstractContextManager[Session]:
        return connected(self.request.options.url, self.request.options.access)


async def _initial(store: ObjectStore, options: Options) -> Document:
    if await find_layout(store, options.layout) == "job":
        return (await job.initial(store, options.starting)).document()
    return (await query.initial(store, options.starting)).document()


async def _latest(store: ObjectStore, options: Options) -> Document:
    if await find_layout(store, options.layout) == "job":
        return (await job.latest(store)).document()
    return (await query.latest(store)).document()


async def _plan(
    store: ObjectStore, request: Request, start: Document, end: Document
) -> Sequence[Part]:
    if layout_of([start, end]) == "job":
        return await job.plan(store, request, JobOffset.of(start), JobOffset.of(end))
    return await query.plan(store, request, QueryOffset.of(start), QueryOffset.of(end))
