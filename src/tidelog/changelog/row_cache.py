"""The rows of one state in memory by their keys, of which those that the table has too can go.

Invariants:
- a row lies in one dict, and none of these becomes large: one that doubles holds the process while
  it is copied, 0.23 s at 5.6 million rows (docs/decisions/023-stability.md);
- rows leave some at a time, in the order in which the table got them or they were read; one that
  was used since waits for another turn (the clock of page caches), so what is hot stays;
- a row whose newest value the table lacks never leaves; all others wait for their turn.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from tidelog.changelog.row_memory import BufferedRow

FIRST_ROWS: Final = 340_000
"""Rows in the first dict, which is looked at first: most states need no other. A dict of half a
million slots takes these and one batch more; to double it then would take 30 ms."""
_DICTS: Final = 128
"""Other dicts, by the hash of the key: thirty million rows make each as large as the first."""

Rows = dict[bytes, BufferedRow]


class RowCache:
    """Rows by key. `first`, always the same dict, is for fast reads; `get` finds all rows."""

    __slots__ = ("_dicts_count", "_queue", "dicts", "first")

    def __init__(self) -> None:
        self.first: Rows = {}
        self.dicts: tuple[Rows, ...] = ()
        self._dicts_count = 0
        self._queue: deque[BufferedRow] = deque()
        """Rows that may leave; those that changed, or were removed, meanwhile are still in it."""

    def __len__(self) -> int:
        return len(self.first) + self._dicts_count

    def get(self, key: bytes) -> BufferedRow | None:
        row = self.first.get(key)
        if row is None and self.dicts:
            row = self.dicts[hash(key) % _DICTS].get(key)
        return row

    def get_many(self, keys: list[bytes]) -> list[BufferedRow | None]:
        """The row of each key, None where there is none."""
        rows = list(map(self.first.get, keys))
        if self.dicts and None in rows:
            dicts, pairs = self.dicts, zip(rows, keys, strict=True)
            return [
                dicts[hash(key) % _DICTS].get(key) if row is None else row for row, key in pairs
            ]
        return rows

    def add(self, rows: Rows) -> None:
        """Add rows whose keys are not here."""
        if len(self.first) < FIRST_ROWS:
            self.first.update(rows)
            return
        dicts = self.dicts = self.dicts or tuple({} for _ in range(_DICTS))
        for key, row in rows.items():
            dicts[hash(key) % _DICTS][key] = row
        self._dicts_count += len(rows)

    def remove(self, keys: Iterable[bytes]) -> None:
        """Remove rows that are here."""
        first, dicts = self.first, self.dicts
        for key in keys:
            if first.pop(key, None) is None:
                del dicts[hash(key) % _DICTS][key]
                self._dicts_count -= 1

    def release(self) -> bool:
        """Remove the rows of one dict: to free millions at once would hold the process for a
        second. Whether there are more.
        """
        self._queue.clear()
        next(filter(None, (self.first, *self.dicts)), {}).clear()
        self._dicts_count = sum(map(len, self.dicts))
        return len(self) > 0

    def may_leave(self, rows: Iterable[BufferedRow]) -> None:
        """The table has these rows, too."""
        queue, before = self._queue, len(self._queue)
        for row in rows:
            if row.turns:
                row.turns = 2
            else:
                row.turns = 1
                queue.append(row)
        # Where memory is never short nobody takes out rows that were removed meanwhile.
        for _ in range(min(2 * (len(queue) - before), len(queue) - len(self))):
            row = queue.popleft()
            if self.get(row.key) is row:
                queue.append(row)

    def evict(self, limit: int) -> int:
        """Remove rows that the table has, too; looks at `limit` at most. The number of these."""
        before = len(self)
        for _ in range(min(limit, len(self._queue))):
            row = self._queue.popleft()
            if row.changed or row.dirty:
                row.turns = 0  # it comes again when the table has its newest value
            elif row.turns > 1:
                row.turns = 1
                self._queue.append(row)
            elif self.get(row.key) is row:
                self.remove((row.key,))
        return before - len(self)
