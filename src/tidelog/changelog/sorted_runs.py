"""Changed rows of a state in the order of their keys, as runs of which each is sorted.

Invariant: each run has less than half as many rows as the one before, so there are few; rows that
come are sorted once and merged a few times, and a scan finds its range without a merge of all.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import chain, repeat
from operator import itemgetter

from tidelog.changelog.row_memory import BufferedRow, row_key


class SortedRuns:
    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[list[BufferedRow]] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def __iter__(self) -> Iterator[BufferedRow]:
        return chain(*self._runs)

    def add(self, rows: list[BufferedRow]) -> None:
        """Add rows that are not here, in any order."""
        if not rows:
            return
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
        """Take the first rows, at most so many."""
        if len(self._runs) > 1:
            self._runs = [sorted(self, key=row_key)]
        rows = self._runs[0][:limit] if self._runs else []
        if rows:
            del self._runs[0][:limit]
            self._runs = [run for run in self._runs if run]
        return rows

    def put_back(self, rows: list[BufferedRow]) -> None:
        """Give back rows, in their order, that come before all that are here."""
        if rows:
            self._runs = [rows + list(self)]


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
