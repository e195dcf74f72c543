"""Stateful processors of simulated jobs, over every kind of state.

Invariant: what they emit in all does not depend on how the records of different sources
interleave, on buffers, or on when an incarnation ends.
"""

from collections.abc import Iterator
from typing import Any, Final

from tests.simulator.jobs.source import Record
from tidelog.state.processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

BUCKET_MS: Final = 700


def bucket_of(record: Record) -> int:
    """The end of the bucket of a record's time."""
    return (record.time // BUCKET_MS + 1) * BUCKET_MS


class Numbering(StatefulProcessor):
    """Numbers the records of a key: emits (key, 1), (key, 2), ..."""

    def __init__(self, padding: int) -> None:
        self._padding = "x" * padding

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "count long, padding string")
        self._total = handle.getReducingState(
            "total", "total long", lambda left, right: (left[0] + right[0],)
        )

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[Any]:
        stored = self._count.get()
        count = stored[0] if stored is not None else 0
        for row in rows:
            count += 1
            self._total.add((row.value,))
            yield key[0], count
        self._count.update((count, self._padding))


class Buckets(StatefulProcessor):
    """Collects records by event time; when a bucket is over, emits what was in it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._sums = handle.getMapState("sums", "bucket long", "total long, count long")
        self._seen = handle.getListState("seen", "bucket long, number long")

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[Any]:
        for row in rows:
            bucket = bucket_of(row)
            total, count = self._sums.getValue((bucket,)) or (0, 0)
            self._sums.updateValue((bucket,), (total + row.value, count + 1))
            self._seen.appendValue((bucket, row.number))
            self._handle.registerTimer(bucket)
        return iter(())

    def handleExpiredTimer(
        self, key: tuple[Any, ...], timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Any]:
        bucket = expiredTimerInfo.getExpiryTimeInMs()
        total, count = self._sums.getValue((bucket,)) or (0, 0)
        self._sums.removeKey((bucket,))
        seen = list(self._seen.get())
        self._seen.put([entry for entry in seen if entry[0] != bucket])
        numbers = tuple(sorted(number for at, number in seen if at == bucket))
        yield key[0], bucket, total, count, numbers
