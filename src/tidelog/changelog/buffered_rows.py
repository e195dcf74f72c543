"""A row in memory, and the rows of a state that the table does not have yet.

Invariants: a row says itself whether it changed and whether it is dirty; a row that is dirty is
listed, and one that is listed and not dirty is skipped.
"""

from collections.abc import Iterator
from operator import attrgetter
from typing import Any, Final

import msgspec


class BufferedRow(msgspec.Struct, gc=False, eq=False):
    """A row in memory, with its newest value; None is a delete.

    What is to become of a row is said by the row: a second dict of rows that changed would be a
    second look-up for each, which misses the processor's cache.
    """

    key: bytes
    value: Any
    changed: bool = False
    """The log does not have this value yet."""
    dirty: bool = False
    """The log has a newer value than the table."""


row_key: Final = attrgetter("key")


class DirtyRows:
    """Rows that the log has and the table does not."""

    __slots__ = ("_count", "_listed")

    def __init__(self) -> None:
        self._listed: list[BufferedRow] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[BufferedRow]:
        """The rows, some of them twice."""
        return (row for row in self._listed if row.dirty)

    def add(self, rows: list[BufferedRow]) -> None:
        """The log has these rows and the table does not."""
        for row in rows:
            if not row.dirty:
                row.dirty = True
                self._listed.append(row)
                self._count += 1

    def discard(self, rows: list[BufferedRow]) -> None:
        """The table has these rows."""
        for row in rows:
            if row.dirty:
                row.dirty = False
                self._count -= 1
        self._forget()

    def take(self, most: int) -> list[BufferedRow]:
        """At most `most` of the rows, by their keys; the table gets them now."""
        rows: list[BufferedRow] = []
        while self._listed and len(rows) < most:
            row = self._listed.pop()
            if row.dirty:
                row.dirty = False
                rows.append(row)
        self._count -= len(rows)
        self._forget()
        rows.sort(key=row_key)
        return rows

    def _forget(self) -> None:
        """Drop rows that are dirty no more, when none is: they keep their values in memory."""
        if not self._count:
            self._listed = []

    def sorted(self) -> list[BufferedRow]:
        """All rows by their keys."""
        return sorted(set(self), key=row_key)
