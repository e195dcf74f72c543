"""The write buffer of a subtask: the rows of all its states, which leave it in flushes.

Invariant: one flush takes a row at most once, with its newest value; a batch is sorted by row.
"""

from operator import attrgetter
from typing import Final, Protocol

from tidelog.changelog.row_memory import BytesToLookAt, RowSize, until_next_sample
from tidelog.changelog.state_rows import Columns, Decode, Encode, EncodeMany, StateRows
from tidelog.table.port import Table

SLICE_ROWS: Final = 2048
"""Most rows, or elements of lists, that one step of a flush takes: milliseconds of work."""


class Unflushed(Protocol):
    """What becomes rows of states when a flush takes it, and may be gone before."""

    updates: int
    """Changes since the last flush that no row counts."""

    def __len__(self) -> int:
        """The rows that it would become."""

    @property
    def memory_bytes(self) -> int:
        """About how much memory it takes."""

    def spill(self, limit: int) -> None:
        """Put at most so many rows into their states."""


class Cache(Protocol):
    """What an operator keeps in memory of rows, and may lose between two calls."""

    @property
    def cached_bytes(self) -> int:
        """About how much memory it takes."""

    size: RowSize
    """About how much memory one row takes."""

    def evict(self, limit: int) -> int:
        """Forget at most so many rows; the number of these, 0 only if there is none to forget."""


class WriteBuffer:
    """All states of one subtask."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._states: list[StateRows] = []
        self._unflushed: list[Unflushed] = []
        self._parts: list[StateRows | Unflushed] = []
        """States, and what becomes rows of states at a flush."""
        self._caches: list[Cache] = []
        self.extra = 0
        """Elements appended to rows that were already changed (list states)."""
        self._element = RowSize()
        self._sample_every = 1
        self.read, self.written = BytesToLookAt(), BytesToLookAt()

    def grew(self, elements: int, newest: object) -> None:
        """Account for elements appended to rows that were already changed."""
        if self.extra % self._sample_every < elements:
            size = self._element.sample(b"", newest)
            self.written.add(max(elements, self._sample_every) * size)
            self._sample_every = until_next_sample(size)
        self.extra += elements

    def __len__(self) -> int:
        """Rows, plus elements appended to them, since the last flush."""
        return sum(map(len, self._parts)) + self.extra

    @property
    def updates(self) -> int:
        """Rows put and deleted and elements appended since the last flush, each time counted."""
        return sum(part.updates for part in self._parts) + self.extra

    @property
    def memory_bytes(self) -> int:
        """About how much memory all rows take, with what operators keep of them."""
        size = int(self.extra * self._element.bytes)
        for part in self._parts:
            size += part.memory_bytes
        for cache in self._caches:
            size += cache.cached_bytes
        return size

    @property
    def is_complete(self) -> bool:
        """Whether all rows are in memory: none has to be looked up in the table."""
        return all(rows.is_complete for rows in self._states)

    @property
    def dirty(self) -> int:
        """Rows that the log has and the table does not."""
        return sum(rows.dirty for rows in self._states)

    @property
    def cached_bytes(self) -> int:
        return sum(rows.cached_bytes for rows in (*self._states, *self._caches))

    def has(self, key: bytes) -> bool:
        """Whether a row with a value is in memory, so that the table is not asked for it."""
        return any(rows.newest(key, None) is not None for rows in self._states)

    def evict(self, size: int) -> int:
        """Forget some rows that the table has as well, of about so many bytes; their number.

        Those of the state that caches the most; 0: the table lacks all of them that were looked at.
        """
        caches = [rows for rows in (*self._states, *self._caches) if rows.cached_bytes]
        caches.sort(key=_cached_bytes, reverse=True)
        for rows in caches:
            limit = 1 + int(size / max(1.0, rows.size.bytes))
            if count := rows.evict(min(limit, SLICE_ROWS)):
                return count
        return 0

    def release(self) -> bool:
        """Forget everything, some at a time: nothing is read or flushed any more. Whether there is
        more.
        """
        return any(rows.release() for rows in self._states)

    def state(
        self,
        encode: Encode,
        decode: Decode,
        *,
        cached: bool,
        scanned: bool = False,
        encode_many: EncodeMany | None = None,
    ) -> StateRows:
        """Add a state; `encode_many` encodes the values of a flush, and may refuse them."""
        rows = StateRows(
            self._table,
            encode,
            decode,
            cached=cached,
            scanned=scanned,
            is_complete=self._table.is_empty(),
            encode_many=encode_many,
            read=self.read,
            written=self.written,
        )
        self._states.append(rows)
        self._parts.append(rows)
        return rows

    def add_cache(self, cache: Cache) -> None:
        """Let this be counted as memory of the rows, and be evicted with them."""
        self._caches.append(cache)

    def add_unflushed(self, unflushed: Unflushed) -> None:
        """Let this become rows at each flush."""
        self._unflushed.append(unflushed)
        self._parts.append(unflushed)

    def spill(self, limit: int = SLICE_ROWS) -> None:
        """Bring rows to the states for the next `drain`, as many as it takes."""
        for unflushed in self._unflushed:
            unflushed.spill(limit)

    def take_updates(self) -> int:
        """The updates since the last flush, which are none from now on: a flush begins."""
        updates = self.updates
        self.extra = 0
        for part in self._parts:
            part.updates = 0
        return updates

    def drain(self, limit: int = SLICE_ROWS, *, cache: bool = True, dirty: bool = False) -> Columns:
        """Take at most that many changed rows, as sorted columns of row keys and values."""
        drained: list[Columns] = []
        for rows in self._states:
            if rows and limit > 0:
                drained.append(rows.drain(limit, cache=cache, dirty=dirty))
                limit -= len(drained[-1][0])
        return _merged(drained)

    def dirty_ends(self) -> list[int]:
        """A mark behind the rows that the table lacks now, for `has_dirty_before`."""
        return [rows.dirty_positions[1] for rows in self._states]

    def has_dirty_before(self, ends: list[int]) -> bool:
        """Whether the table lacks one of the rows that it lacked when the mark was set."""
        states = zip(self._states, ends, strict=False)  # others may have been added
        return any(rows.dirty_positions[0] < end for rows, end in states)

    def take_dirty(self, limit: int = SLICE_ROWS) -> Columns:
        """At most that many rows for the table, as sorted columns; the table has them after it.

        They may be newer than what the log has so far. No restore sees that: every checkpoint that
        reads this table also reads the log of all changes made before the table was frozen.
        """
        return _merged([rows.take_dirty(limit) for rows in self._states if rows.dirty])


_cached_bytes: Final = attrgetter("cached_bytes")


def _merged(columns: list[Columns]) -> Columns:
    if len(columns) == 1:
        return columns[0]
    merged: dict[bytes, bytes | None] = {}
    for keys, values in columns:
        merged.update(zip(keys, values, strict=True))
    keys = sorted(merged)
    return keys, list(map(merged.__getitem__, keys))
