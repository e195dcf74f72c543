"""The rows of one state in memory by their keys, in generations, of which the oldest can go.

Invariants:
- a row lies in one dict: among the young rows, which were used lately, among the ageing ones, which
  were young before these, or among the old ones of its key group;
- a row that is used is young again, so what leaves memory first has not been used for longest;
- no dict becomes large, since one that doubles holds the process while it is copied: 0.23 s at 5.6
  million rows (docs/decisions/023-stability.md);
- rows age and leave some at a time, and a row whose newest value the table lacks never leaves.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final

from tidelog.changelog.row_memory import BufferedRow

YOUNG_ROWS: Final = (1 << 18) * 2 // 3
"""Young rows from which on they begin to age: more would double their dict, for more than 10 ms."""
_AGED_AT_LEAST: Final = 64

Rows = dict[bytes, BufferedRow]


class RowCache:
    """Rows by key. `young`, always the same dict, is for fast reads; `get` finds what it lacks."""

    __slots__ = ("_ageing", "_old", "_old_count", "_young_before", "young")

    def __init__(self) -> None:
        self.young: Rows = {}
        self._ageing: Rows = {}
        self._old: dict[bytes, Rows] = {}
        """By key group; the group whose turn it is to give rows up comes first."""
        self._old_count = 0
        self._young_before = 0
        """Young rows when they aged last."""

    def __len__(self) -> int:
        return len(self.young) + len(self._ageing) + self._old_count

    def __iter__(self) -> Iterator[BufferedRow]:
        return chain.from_iterable(
            map(dict.values, (self.young, self._ageing, *self._old.values()))
        )

    def clear(self) -> None:
        self.young.clear()
        self._ageing, self._old, self._old_count = {}, {}, 0

    @property
    def has_aged(self) -> bool:
        """Whether rows may be here that are not young."""
        return bool(self._ageing or self._old_count)

    def get(self, key: bytes) -> BufferedRow | None:
        """The row, which is young from now on."""
        row = self.young.get(key)
        if row is None and self.has_aged and (row := self._pop_aged(key)) is not None:
            self.young[key] = row
        return row

    def look(self, key: bytes) -> BufferedRow | None:
        """The row, of which this is no use."""
        row = self.young.get(key) or self._ageing.get(key)
        if row is None and self._old_count:
            row = self._old.get(key[:2], self._ageing).get(key)
        return row

    def remove(self, keys: Iterable[bytes]) -> None:
        """Remove rows that are here."""
        young = self.young
        for key in keys:
            if young.pop(key, None) is None:
                self._pop_aged(key)

    def age(self) -> None:
        """Let rows age, twice as many as have become young since the last call."""
        came = len(self.young) - self._young_before
        if self._ageing:
            self._age(max(_AGED_AT_LEAST, 2 * came))
        elif len(self.young) >= YOUNG_ROWS:
            self._begin_ageing()
        self._young_before = len(self.young)

    def evict(self, limit: int) -> int:
        """Give up rows that the table has as well, at most `limit`; the number of these.

        It looks at no more rows than that: 0 means that none could be given up among them.
        """
        if not self._ageing and self._old_count < limit:
            self._begin_ageing()
        self._age(limit)
        before, left = len(self), limit
        while left > 0 and self._old:
            group = next(iter(self._old))
            rows = self._old.pop(group)
            keys = list(islice(rows, left))
            left -= len(keys)
            lacking = [row for row in map(rows.pop, keys) if row.changed or row.dirty]
            self._old_count -= len(keys) - len(lacking)
            # They come again after the others, when the table may have them.
            rows.update((row.key, row) for row in lacking)
            if rows:
                self._old[group] = rows
        if before == len(self) and not self._ageing:
            self._begin_ageing()  # the table may have some of the young ones
        return before - len(self)

    def _begin_ageing(self) -> None:
        self._ageing, self._young_before = self.young.copy(), 0
        self.young.clear()

    def _age(self, limit: int) -> None:
        """Make ageing rows old ones."""
        ageing, old = self._ageing, self._old
        count = min(limit, len(ageing))
        for _ in range(count):
            key, row = ageing.popitem()
            group = key[:2]
            rows = old.get(group)
            if rows is None:
                rows = old[group] = {}
            rows[key] = row
        self._old_count += count

    def _pop_aged(self, key: bytes) -> BufferedRow | None:
        row = self._ageing.pop(key, None)
        if row is None and self._old_count:
            row = self._old.get(key[:2], self._ageing).pop(key, None)
            self._old_count -= row is not None
        return row
