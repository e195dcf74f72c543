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

Held = tuple[int, int, Any]
"""Time, number and record, which in this order are sorted."""


class Timeline:
    """A long list of records, in chunks; there is one at least."""

    __slots__ = ("_chunks", "_count")

    def __init__(self, records: list[Held]) -> None:
        self._count = len(records)
        self._chunks = [records[first : first + _CHUNK] for first in range(0, len(records), _CHUNK)]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Held]:
        return chain.from_iterable(list(self._chunks))

    def __getitem__(self, end: int) -> Held:
        """The first record, 0, or the last one, -1."""
        return self._chunks[end][end]

    def append(self, record: Held) -> None:
        """Add a record in its place, which mostly is the end."""
        number = max(0, bisect_right(self._chunks, record, key=_first) - 1)
        chunk = self._chunks[number]
        insort(chunk, record)
        if len(chunk) >= 2 * _CHUNK:
            self._chunks[number : number + 1] = [chunk[:_CHUNK], chunk[_CHUNK:]]
        self._count += 1

    def take(self, count: int) -> list[Held]:
        """Remove the first records, so many or all of them."""
        records: list[Held] = []
        number = 0
        while number < len(self._chunks) and len(records) < count:
            chunk = self._chunks[number]
            room = count - len(records)
            records += chunk[:room]
            if len(chunk) > room:
                self._chunks[number] = chunk[room:]
                break
            number += 1
        del self._chunks[:number]
        self._count -= len(records)
        return records

    def chunks(self, least: float, greatest: float) -> list[list[Held]]:
        """The chunks that hold all records with times between these, and earlier and later ones."""
        begin = max(0, bisect_left(self._chunks, (least,), key=_first) - 1)
        return self._chunks[begin : bisect_right(self._chunks, (greatest, inf), key=_first)]


Records = list[Held] | Timeline


def inserted(records: Records, record: Held) -> Records:
    """The records with another one in its place; they are changed."""
    if isinstance(records, list):
        if len(records) < LONG:
            insort(records, record)
            return records
        records = Timeline(records)
    records.append(record)
    return records


def divided(records: Records, count: int) -> tuple[list[Held], Records]:
    """The first records, so many or all of them, and the others; they are changed."""
    if isinstance(records, list):
        if len(records) < LONG:
            first = records[:count]
            del records[:count]
            return first, records
        records = Timeline(records)
    return records.take(count), records if len(records) else []


def between(records: Records, least: float, greatest: float, step: int) -> Iterator[list[Held]]:
    """Those with times from the least to the greatest, so many at a time."""
    for chunk in [records] if isinstance(records, list) else records.chunks(least, greatest):
        # Of all records of a hot key only those near in time are looked at.
        begin, end = bisect_left(chunk, (least,)), bisect_right(chunk, (greatest, inf))
        for first in range(begin, end, step):
            yield chunk[first : min(first + step, end)]


def newest(records: Sequence[Held] | Timeline, time: int) -> Held | None:
    """The last record with this time or an earlier one."""
    chunks = records.chunks(time, time) if isinstance(records, Timeline) else [records]
    for chunk in reversed(chunks):
        if end := bisect_right(chunk, (time, inf)):
            return chunk[end - 1]
    return None
