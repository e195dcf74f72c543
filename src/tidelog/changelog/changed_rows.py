"""Changed rows of a state: as they came, or in the order of their keys for a state that is scanned.

Invariants: of a scan's range no rows of other key groups are sorted, and rows that come are sorted
once and merged a few times, so a scan finds a few rows among many without a look at those; rows
leave in the order in which they came, or in that of their keys.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, Final

from tidelog.changelog.change import ROW_PREFIX_BYTES, prefix_end
from tidelog.changelog.row_memory import BufferedRow, row_key


class ListedRows(list[BufferedRow]):
    """Changed rows of a state that is not scanned."""

    def take(self, limit: int) -> list[BufferedRow]:
        """Take the rows that came first, at most so many, by their keys."""
        rows = self[:limit]
        del self[:limit]
        rows.sort(key=row_key)
        return rows


class SortedRuns:
    """Rows of one key group, as runs of which each is sorted: each has less than half as many rows
    as the one before, so there are few.
    """

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[list[BufferedRow]] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def __iter__(self) -> Iterator[BufferedRow]:
        return chain(*self._runs)

    def add(self, rows: list[BufferedRow]) -> None:
        """Add rows that are not here, in any order."""
        run = sorted(rows, key=row_key)
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = self._runs.pop() + run
            run.sort(key=row_key)  # two ascending runs: a merge
        self._runs.append(run)

    def between(self, lower: bytes, upper: bytes) -> list[BufferedRow]:
        """Rows with lower <= key < upper, in the order of their keys."""
        ranges = [
            run[bisect_left(run, lower, key=row_key) : bisect_left(run, upper, key=row_key)]
            for run in self._runs
        ]
        return sorted(chain(*ranges), key=row_key)

    def take(self, limit: int) -> list[BufferedRow]:
        """Take the first rows by their keys, at most so many."""
        if len(self._runs) > 1:
            self._runs = [sorted(self, key=row_key)]
        (run,) = self._runs
        rows = run[:limit]
        del run[:limit]
        return rows

    def put_back(self, rows: list[BufferedRow]) -> None:
        """Give back rows, in their order, that come before all that are here."""
        self._runs = [rows + sorted(self, key=row_key)]


class RowsByGroup:
    """Changed rows of a state that is scanned, by their key groups."""

    __slots__ = ("_sorted", "_sorted_count", "unsorted")

    def __init__(self) -> None:
        self.unsorted: Final = defaultdict[bytes, list[BufferedRow]](list)
        """Rows that no scan has seen; who changes one adds it to the list of its key group, for a
        call of a method would take as long as the rest.
        """
        self._sorted: Final = defaultdict[bytes, SortedRuns](SortedRuns)
        self._sorted_count = 0

    def __len__(self) -> int:
        # Asked several times for every buffer.
        return sum(map(len, self.unsorted.values())) + self._sorted_count

    def __iter__(self) -> Iterator[BufferedRow]:
        return chain(*self.unsorted.values(), *self._sorted.values())

    def between(self, lower: bytes, upper: bytes) -> list[BufferedRow]:
        """Rows with lower <= key < upper, in the order of their keys."""
        first, last = lower[:ROW_PREFIX_BYTES], upper[:ROW_PREFIX_BYTES]
        groups = [first]
        if first != last and upper != prefix_end(first):
            present = {*self.unsorted, *self._sorted}
            groups = sorted(group for group in present if first <= group <= last)
        rows: list[BufferedRow] = []
        for group in groups:
            if group in self.unsorted:
                self._sort(group, self.unsorted.pop(group))
            if group in self._sorted:
                rows += self._sorted[group].between(lower, upper)
        return rows

    def take(self, limit: int) -> list[BufferedRow]:
        """Take rows by their keys, at most so many; the first ones of each key group."""
        rows: list[BufferedRow] = []
        while len(rows) < limit and (self.unsorted or self._sorted):
            group = next(iter(self.unsorted or self._sorted))
            members = self.unsorted.pop(group, None) or []
            if group in self._sorted or len(members) > limit - len(rows):
                if members:
                    self._sort(group, members)
                members = self._sorted[group].take(limit - len(rows))
                self._sorted_count -= len(members)
                if not self._sorted[group]:
                    del self._sorted[group]
            rows += members
        rows.sort(key=row_key)
        return rows

    def put_back(self, rows: list[BufferedRow]) -> None:
        """Give back rows that `take` has given, in their order."""
        of_group = defaultdict[bytes, list[BufferedRow]](list)
        for row in rows:
            of_group[row.key[:ROW_PREFIX_BYTES]].append(row)
        for group, members in of_group.items():
            self._sorted[group].put_back(members)
        self._sorted_count += len(rows)

    def _sort(self, group: bytes, rows: list[BufferedRow]) -> None:
        self._sorted[group].add(rows)
        self._sorted_count += len(rows)


def union(
    table_rows: Iterable[tuple[bytes, bytes]], keys: Iterable[bytes]
) -> Iterator[tuple[bytes, bytes | None]]:
    """Rows of a table, and others of which only the keys are known, in order; each key once."""
    key_rows: Iterator[tuple[bytes, bytes | None]] = zip(keys, repeat(None), strict=False)
    last = None
    # Of two rows of one key that of the table comes first.
    for key, value in merge(table_rows, key_rows, key=itemgetter(0)):
        if key != last:
            last = key
            yield key, value


def sharing(values: list[Any], limit: int) -> int:
    """How many of the first values have so many elements together at most, if they are lists."""
    elements = 0
    for count, value in enumerate(values):
        elements += len(value) if type(value) is list else 1
        if elements > limit:
            return max(1, count)
    return len(values)


def merged(
    newer: Iterable[tuple[bytes, Any]],
    table_rows: Iterator[tuple[bytes, bytes]],
    decode: Callable[[bytes], Any],
) -> Iterator[tuple[bytes, Any]]:
    """Sorted union in which a newer row hides the table's and None hides both."""
    row = next(table_rows, None)
    for key, value in newer:
        while row is not None and row[0] < key:
            yield row[0], decode(row[1])
            row = next(table_rows, None)
        if row is not None and row[0] == key:
            row = next(table_rows, None)
        if value is not None:
            yield key, value
    while row is not None:
        yield row[0], decode(row[1])
        row = next(table_rows, None)


def without_deleted(pairs: list[tuple[bytes, Any]]) -> list[tuple[bytes, Any]]:
    """Keys and values of the rows that are there."""
    return [pair for pair in pairs if pair[1] is not None]
