"""Rows in memory as Python objects: one row, those that a table lacks, and what all rows take.

Invariants:
- a row says itself whether it changed and whether it is dirty; a row that is dirty is listed, and
  one that is listed and not dirty is skipped;
- sizes are estimates from samples, because measuring every object would cost more than keeping it;
- what is held stays within the limit but for what is added between two reports.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from operator import attrgetter
from sys import getsizeof
from typing import Any, Final

import msgspec

ROW_SLOT_BYTES: Final = 148
"""A row's object and key without their content, its places in the dict of rows and in a list."""
_CACHED_SHARE: Final = 3 / 4
"""Share of the limit up to which every state keeps its rows."""
_LOOK_BYTES: Final = 4 << 20
"""Rows read or put, in bytes, after which the memory of all rows is looked at."""
SAMPLE_EVERY: Final = 64
"""Rows that come one by one, of which one is measured."""
_SAMPLE_BYTES: Final = 256 << 10


def until_next_sample(size: int) -> int:
    """Of how many rows that are put one by one, or elements, one is measured, where the last one
    had this size: of large ones more, since few of them take much memory.
    """
    return max(1, min(SAMPLE_EVERY, _SAMPLE_BYTES // size))


_DEPTH: Final = 4
_SAMPLED: Final = 4
"""How many elements of a container are measured; the others count as their average."""
_CONTAINERS: Final = (list, tuple, set, frozenset)


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
    turns: int = 0
    """Turns until it may leave memory: 1, or 2 if it was used meanwhile; 0: it does not wait."""


row_key: Final = attrgetter("key")


class DirtyRows:
    """A queue of the rows that the log has and the table does not, in the order in which they came:
    those that changed last may change again soon. A position counts all rows before it, since the
    start.
    """

    __slots__ = ("_count", "_listed", "first")

    def __init__(self) -> None:
        self._listed: deque[BufferedRow] = deque()
        self._count = 0
        self.first = 0
        """The position of the next row."""

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[BufferedRow]:
        """The rows, some of them twice."""
        return (row for row in self._listed if row.dirty)

    @property
    def end(self) -> int:
        """The position after the last row."""
        return self.first + len(self._listed)

    def add(self, rows: list[BufferedRow]) -> None:
        """The log has these rows and the table does not."""
        clean = [row for row in rows if not row.dirty]
        for row in clean:
            row.dirty = True
        self._listed.extend(clean)
        self._count += len(clean)

    def discard(self, rows: list[BufferedRow]) -> None:
        """The table has these rows."""
        for row in rows:
            if row.dirty:
                row.dirty = False
                self._count -= 1
        self._forget()

    def take(self, limit: int) -> list[BufferedRow]:
        """At most `limit` of the rows, by their keys; the table gets them now."""
        rows: list[BufferedRow] = []
        while self._listed and len(rows) < limit:
            row = self._listed.popleft()
            self.first += 1
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
            self.first = self.end
            self._listed.clear()


def object_bytes(value: object, depth: int = _DEPTH) -> int:
    """About how much memory an object takes with what it holds."""
    size = getsizeof(value)
    if depth == 0:
        return size
    kind = type(value)
    if kind is bytes or kind is str or kind is int or kind is float:
        return size
    if isinstance(value, Mapping):
        contents: Iterable[object] = chain.from_iterable(value.items())
        return size + _mean(contents, 2 * _SAMPLED, 2 * len(value), depth)
    if isinstance(value, _CONTAINERS):
        return size + _mean(value, _SAMPLED, len(value), depth)
    parts = getattr(value, "__dict__", None)
    return size if parts is None else size + object_bytes(parts, depth - 1)


def _mean(values: Iterable[object], limit: int, count: int, depth: int) -> int:
    sampled = [object_bytes(value, depth - 1) for value in islice(values, limit)]
    return sum(sampled) * count // len(sampled) if sampled else 0


class RowSize:
    """The mean memory of a row, from samples; the newest count most."""

    __slots__ = ("_samples", "bytes")

    _WINDOW: Final = 32

    def __init__(self) -> None:
        self.bytes = 0.0
        self._samples = 0

    def sample(self, key: bytes, value: Any) -> int:
        """Account for one row of those that are put or read; its size."""
        self._samples = min(self._samples + 1, self._WINDOW)
        row_bytes = len(key) + ROW_SLOT_BYTES + object_bytes(value)
        self.bytes += (row_bytes - self.bytes) / self._samples
        return row_bytes


class BytesToLookAt:
    """Memory of rows that came, by reads of the table or by puts, until somebody looks at it."""

    __slots__ = ("_bytes", "look")

    def __init__(self) -> None:
        self._bytes = 0.0
        self.look: Callable[[], object] | None = None
        """Called when much has come; None for a task that asks `flush_due` by itself."""

    def add(self, size: float) -> None:
        """Account for rows of `size` bytes."""
        self._bytes += size
        if self._bytes >= _LOOK_BYTES and self.look is not None:
            self._bytes = 0.0
            self.look()


class RowAccount:
    """What the rows of one subtask take."""

    __slots__ = ("_memory", "bytes", "shed")

    def __init__(self, memory: "RowMemory", shed: Callable[[], Iterator[None]]) -> None:
        self._memory = memory
        self.bytes = 0
        self.shed = shed
        """Frees the memory in steps, as many as are taken, and calls `holds` after each."""

    def holds(self, size: int) -> None:
        """Set the bytes that the subtask's rows take now."""
        self._memory.used_bytes += size - self.bytes
        self.bytes = size

    def close(self) -> None:
        """The subtask holds no rows any more; closing it again changes nothing."""
        self.holds(0)
        if self in self._memory.accounts:
            self._memory.accounts.remove(self)


class RowMemory:
    """The limit that the rows of all subtasks share; None: there is none."""

    def __init__(self, limit_bytes: int | None = None) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.accounts: list[RowAccount] = []
        self._shedding = False

    def account(self, shed: Callable[[], Iterator[None]]) -> RowAccount:
        """The account of another subtask."""
        account = RowAccount(self, shed)
        self.accounts.append(account)
        return account

    def surplus(self, cached_bytes: int) -> int:
        """Bytes that a subtask is to give up, which caches so many bytes of rows.

        There is to be room for what the next flushes bring, and who keeps little keeps it.
        """
        if self.limit_bytes is None or cached_bytes * len(self.accounts) <= self.used_bytes / 2:
            return 0
        return max(0, self.used_bytes - int(_CACHED_SHARE * self.limit_bytes))

    @property
    def exceeded(self) -> bool:
        """Whether the rows took more than the limit when they were counted last."""
        return self.limit_bytes is not None and self.used_bytes > self.limit_bytes

    def make_room(self) -> Iterator[None]:
        """Let the largest accounts give back what they hold until the rest fits.

        One that takes in no records any more may be the largest: who finds the limit passed
        makes room at the expense of any. Between two steps others may have their turn; those who
        find the limit passed as well wait here.
        """
        while self.exceeded and self._shedding:
            yield
        if not self.exceeded:
            return
        self._shedding = True
        try:
            for account in sorted(self.accounts, key=lambda account: account.bytes, reverse=True):
                steps = account.shed()
                # No more than what is too much: to read it all again would take long.
                while self.exceeded and next(steps, self) is not self:
                    yield
        finally:
            self._shedding = False
