"""The records of one key in the order of time, however many they are.

A list takes what comes in order. Once it is long, a record that comes out of order, or goes, would
move all that follow: it is cut into chunks then, of which one changes at a time. Invariants of
these: none is empty, each is in order, and so are they.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from itertools import chain
from math import inf
from operator import itemgetter
from typing import Any, Final

LONG: Final = 4096
"""Records from which on a list is cut."""
_CHUNK: Final = 512
"""Records of a chunk; one that has twice as many is divided."""
_first: Final = itemgetter(0)

TimedRecord = tuple[int, int, Any]
"""Time, number and record: they are sorted in this order."""
EVENT_TIME, NUMBER, RECORD = 0, 1, 2
"""Indexes of the parts of a timed record."""


class Timeline:
    """A long list of records, in chunks; there is one at least."""

    __slots__ = ("_chunks", "_count")

    def __init__(self, records: list[TimedRecord]) -> None:
        self._count = len(records)
        self._chunks = [records[first : first + _CHUNK] for first in range(0, len(records), _CHUNK)]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[TimedRecord]:
        return chain.from_iterable(list(self._chunks))

    def __getitem__(self, end: int) -> TimedRecord:
        """The first record, 0, or the last one, -1."""
        return self._chunks[end][end]

    def append(self, record: TimedRecord) -> None:
        """Add a record in its place, which mostly is the end."""
        index = max(0, bisect_right(self._chunks, record, key=_first) - 1)
        chunk = self._chunks[index]
        insort(chunk, record)
        if len(chunk) >= 2 * _CHUNK:
            self._chunks[index : index + 1] = [chunk[:_CHUNK], chunk[_CHUNK:]]
        self._count += 1

    def take(self, count: int) -> list[TimedRecord]:
        """Remove the first records, so many or all of them."""
        records: list[TimedRecord] = []
        index = 0
        while index < len(self._chunks) and len(records) < count:
            chunk = self._chunks[index]
            room = count - len(records)
            records += chunk[:room]
            if len(chunk) > room:
                self._chunks[index] = chunk[room:]
                break
            index += 1
        del self._chunks[:index]
        self._count -= len(records)
        return records

    def chunks(self, earliest: float, latest: float) -> list[list[TimedRecord]]:
        """The chunks with the records of these times; they may have others too."""
        begin = max(0, bisect_left(self._chunks, (earliest,), key=_first) - 1)
        return self._chunks[begin : bisect_right(self._chunks, (latest, inf), key=_first)]


Records = list[TimedRecord] | Timeline


def inserted(records: Records, record: TimedRecord) -> Records:
    """The records with another one in its place; they are changed."""
    if isinstance(records, list):
        if len(records) < LONG:
            insort(records, record)
            return records
        records = Timeline(records)
    records.append(record)
    return records


def divided(records: Records, count: int) -> tuple[list[TimedRecord], Records]:
    """The first records, so many or all of them, and the others; they are changed."""
    if isinstance(records, list):
        if len(records) < LONG:
            first = records[:count]
            del records[:count]
            return first, records
        records = Timeline(records)
    return records.take(count), records if len(records) else []


def between(
    records: Records, earliest: float, latest: float, step: int
) -> Iterator[list[TimedRecord]]:
    """The records from the earliest to the latest time, `step` at a time."""
    chunks = [records] if isinstance(records, list) else records.chunks(earliest, latest)
    for chunk in chunks:
        # Of all records of a hot key only those near in time are looked at.
        begin, end = bisect_left(chunk, (earliest,)), bisect_right(chunk, (latest, inf))
        for first in range(begin, end, step):
            yield chunk[first : min(first + step, end)]


def newest(records: Sequence[TimedRecord] | Timeline, time: int) -> TimedRecord | None:
    """The last record with this time or an earlier one."""
    chunks = records.chunks(time, time) if isinstance(records, Timeline) else [records]
    for chunk in reversed(chunks):
        if end := bisect_right(chunk, (time, inf)):
            return chunk[end - 1]
    return None
