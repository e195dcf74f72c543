"""The rows of one state in memory: what changed since the last flush, and what reads may want.

Invariants:
- a read sees rows changed since the last flush or cached, else the table;
- rows that a flush gave to the log alone are dirty: they stay here until the table has them;
- a row that was deleted stays here no longer than until the table has deleted it;
- while the rows are complete, all of the state's rows are here, and the table is not asked;
- within one flush a row appears at most once, with its newest value: a hot key costs one log
  entry per flush, not one per update;
- rows that are scanned leave the buffer in the order in which they were put, or in that of their
  keys, so of the numbered rows of a list the older ones always leave first;
- objects are serialized once, at the flush; an object handed in is never changed afterwards
  unless the same row is put again.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice, repeat
from typing import Any, Final, cast

from tidelog.changelog.change import ROW_PREFIX_BYTES
from tidelog.changelog.changed_rows import (
    ListedRows,
    RowsByGroup,
    merged,
    sharing,
    union,
    without_deleted,
)
from tidelog.changelog.row_cache import RowCache
from tidelog.changelog.row_memory import (
    BufferedRow,
    BytesToLookAt,
    DirtyRows,
    RowSize,
    row_key,
    until_next_sample,
)
from tidelog.table.port import Table

_COPIED_AT_ONCE: Final = 1024
"""Values that are copied before the first of them is given."""

_IMMUTABLE: Final = frozenset({type(None), bool, int, float, str, bytes})

SLICE_BYTES: Final = 2 << 20
"""Most bytes of a state's rows that one step of a flush takes, for large rows."""

LARGE_ROW: Final = 8 << 20
"""Bytes from which a row is not kept in memory beside the copies that table and log make of it."""

Columns = tuple[list[bytes], list[bytes | None]]
"""Row keys, ascending, and their encoded values, None for a row that was deleted."""
Encode = Callable[[Any], bytes]
EncodeMany = Callable[[list[Any]], list[bytes]]
Decode = Callable[[bytes], Any]


class StateRows:
    """The rows of one state of one subtask; values are the state's objects, None is a delete.

    `_rows` has changed, dirty and cached rows alike, by key. The changed ones are in `_listed` too,
    or, of a state that is scanned, in `_by_group`, in whose lists `_groups` they are put.
    """

    __slots__ = (
        "_by_group",
        "_cached",
        "_decode",
        "_dirty",
        "_encode",
        "_encode_many",
        "_first",
        "_groups",
        "_listed",
        "_read",
        "_rows",
        "_sample_every",
        "_table",
        "_written",
        "is_complete",
        "size",
        "updates",
    )

    def __init__(
        self,
        table: Table,
        encode: Encode,
        decode: Decode,
        *,
        cached: bool,
        scanned: bool,
        is_complete: bool,
        encode_many: EncodeMany | None,
        read: BytesToLookAt,
        written: BytesToLookAt,
    ) -> None:
        self._table = table
        self._read, self._written = read, written
        self._encode = encode
        self._encode_many = encode_many or (lambda values: list(map(encode, values)))
        self._decode = decode
        self._cached = cached
        self.is_complete = is_complete and cached
        self._rows = RowCache()
        self._first = self._rows.first
        # Only states that are scanned have their changed rows in order, and only when one asks.
        self._listed = ListedRows()
        self._by_group = RowsByGroup() if scanned else None
        self._groups = None if self._by_group is None else self._by_group.unsorted
        self._dirty = DirtyRows()
        self.size = RowSize()
        self._sample_every = 1
        self.updates = 0
        """Rows put and deleted since the last flush, each time counted."""

    @property
    def _changed(self) -> ListedRows | RowsByGroup:
        return self._listed if self._by_group is None else self._by_group

    def __len__(self) -> int:
        """Rows changed since the last flush."""
        return len(self._changed)

    @property
    def dirty(self) -> int:
        """Rows that the log has and the table does not."""
        return len(self._dirty)

    @property
    def dirty_positions(self) -> tuple[int, int]:
        """Positions in the queue of rows that the table lacks: of the first row, and of the end."""
        return self._dirty.first, self._dirty.end

    @property
    def memory_bytes(self) -> int:
        """About how much memory the changed and the cached rows take."""
        return int(len(self._rows) * self.size.bytes)

    @property
    def cached_bytes(self) -> int:
        return int((len(self._rows) - len(self)) * self.size.bytes)

    def evict(self, limit: int) -> int:
        """Forget rows that the table has as well, at most `limit`; the number of these."""
        count = self._rows.evict(limit)
        self.is_complete = self.is_complete and not count
        return count

    def release(self) -> bool:
        """Forget rows for good, some at a time; whether there are more."""
        self._listed, self._dirty = ListedRows(), DirtyRows()
        self._by_group = self._groups = None
        return self._rows.release()

    def get(self, key: bytes) -> Any | None:
        """The row's newest value, or None."""
        row = self._first.get(key) or self._rows.get(key)
        if row is not None:
            if row.turns:
                row.turns = 2
            return row.value
        if self.is_complete:
            return None
        data = self._table.get(key)
        value = None if data is None else self._decode(data)
        if self._cached:
            if len(self._rows) % self._sample_every == 0:
                self._read.add(self._sample_every * self._sample(key, value))
            row = BufferedRow(key, value)
            self._rows.add({key: row})
            self._rows.may_leave((row,))
        return value

    def changed(self, key: bytes) -> Any | None:
        """The row's value if it was put since the last flush, else None."""
        row = self._rows.get(key)
        return row.value if row is not None and row.changed else None

    def newest(self, key: bytes, data: bytes | None) -> Any | None:
        """The row's newest value, where the table has `data`; None if it is deleted since."""
        row = self._rows.get(key)
        if row is None:
            return None if data is None else self._decode(data)
        return row.value

    def unsettled_keys(self) -> list[bytes]:
        """The keys of rows that the table lacks, in no order, some of them twice."""
        return [row.key for row in chain(self._changed, self._dirty)]

    def look_through(
        self, lower: bytes, upper: bytes, unsettled: list[bytes]
    ) -> Iterator[tuple[bytes, Any]]:
        """Rows of a range in their order, None for one that was deleted, of a state that is not
        scanned: those of the table, and of these sorted keys which it lacked before.
        """
        keys = unsettled[bisect_left(unsettled, lower) : bisect_left(unsettled, upper)]
        for key, data in union(self._table.scan(lower, upper), keys):
            yield key, self.newest(key, data)

    def get_many(self, keys: list[bytes]) -> list[Any | None]:
        """Newest values in the order of `keys`; one table access for all that are not here."""
        rows = self._rows.get_many(keys)
        for row in rows:
            if row is not None and row.turns:
                row.turns = 2
        if all(rows):
            return [row.value for row in cast("list[BufferedRow]", rows)]
        values = [None if row is None else row.value for row in rows]
        cold = [index for index, row in enumerate(rows) if row is None]
        for index, value in zip(cold, self._stored([keys[index] for index in cold]), strict=True):
            values[index] = value
        return values

    def combine_many(
        self, keys: list[bytes], values: list[Any], combine: Callable[[Any, Any], Any]
    ) -> list[BufferedRow]:
        """Combine values into the rows of `keys`, one after the other; a row without one takes it.

        There is at least one key. Returns the row of each. Raises what `combine` raises; the rows
        before that one have changed.
        """
        hits = self._rows.get_many(keys)
        rows = cast("list[BufferedRow]", hits) if all(hits) else self._completed(keys, hits)
        changed, groups = self._listed, self._groups
        for row, value in zip(rows, values, strict=True):
            before = row.value
            row.value = value if before is None else combine(before, value)
            if not row.changed:
                row.changed = True
                (changed if groups is None else groups[row.key[:ROW_PREFIX_BYTES]]).append(row)
        self._count(len(rows), rows[0].key, rows[0].value)
        return rows

    def _completed(self, keys: list[bytes], hits: list[BufferedRow | None]) -> list[BufferedRow]:
        """The rows of all keys, with new ones for those that are not in memory."""
        # A key that occurs twice has one row.
        cold = list(dict.fromkeys(key for key, row in zip(keys, hits, strict=True) if row is None))
        read = dict(zip(cold, map(BufferedRow, cold, self._stored(cold)), strict=True))
        self._rows.add(read)
        return [row or read[key] for key, row in zip(keys, hits, strict=True)]

    def put(self, key: bytes, value: Any) -> None:
        row = self._first.get(key) or self._rows.get(key)
        if row is None:
            row = BufferedRow(key, value)
            self._rows.add({key: row})
        else:
            row.value = value
        if not row.changed:
            row.changed = True
            groups = self._groups
            (self._listed if groups is None else groups[key[:ROW_PREFIX_BYTES]]).append(row)
        if self.updates % self._sample_every == 0:
            self._written.add(self._sample_every * self._sample(key, value))
        self.updates += 1

    def put_many(self, values: Mapping[bytes, Any]) -> None:
        # As `put`, written out: a call for each row would take as long as the rest.
        first, get, changed, groups = self._first, self._rows.get, self._listed, self._groups
        new: dict[bytes, BufferedRow] = {}
        for key, value in values.items():
            row = first.get(key) or get(key)
            if row is None:
                row = new[key] = BufferedRow(key, value)
            else:
                row.value = value
            if not row.changed:
                row.changed = True
                (changed if groups is None else groups[key[:ROW_PREFIX_BYTES]]).append(row)
        self._rows.add(new)
        if values:
            self._count(len(values), *next(iter(values.items())))

    def delete(self, key: bytes) -> None:
        """Remove a row; removing an absent one is no error."""
        self.put(key, None)

    def delete_many(self, keys: Iterable[bytes]) -> None:
        self.put_many(dict.fromkeys(keys))

    def scan(
        self, lower: bytes, upper: bytes, *, copied: bool = False
    ) -> Iterator[tuple[bytes, Any]]:
        """Rows with lower <= key < upper in key order, as they are when the scan starts.

        With `copied` the values are no objects of the buffer: the caller may change them.
        """
        assert self._by_group is not None, "the state was not declared as scanned"
        rows = self._pairs(self._by_group.between(lower, upper), copied=copied)
        return merged(rows, self._table.scan(lower, upper), self._decode)

    def here(self) -> Iterator[list[BufferedRow]]:
        """Lists of the rows that the table may lack, for `scan_with`; in no order, some twice."""
        if self.is_complete:
            return (list(rows.values()) for rows in (self._rows.first, *self._rows.dicts))
        return iter((list(self._changed), list(self._dirty)))

    def scan_with(
        self, cached_rows: Iterator[BufferedRow], lower: bytes, upper: bytes
    ) -> Iterator[tuple[bytes, Any]]:
        """As `scan`; `cached_rows` are those of the range that `here()` gave, each once, by key."""
        chunks = iter(lambda: list(islice(cached_rows, _COPIED_AT_ONCE)), [])
        pairs = (self._pairs(chunk, copied=True) for chunk in chunks)
        if self.is_complete:
            return chain.from_iterable(map(without_deleted, pairs))
        table_rows = self._table.scan(lower, upper)
        return merged(chain.from_iterable(pairs), table_rows, self._decode)

    def _pairs(self, rows: list[BufferedRow], *, copied: bool) -> list[tuple[bytes, Any]]:
        """Keys and values of rows; with `copied` the values are no objects of the buffer."""
        values = [row.value for row in rows]
        if copied and not set(map(type, values)) <= _IMMUTABLE:
            encode, decode = self._encode, self._decode
            values = [None if value is None else decode(encode(value)) for value in values]
        return list(zip(map(row_key, rows), values, strict=True))

    def drain(self, limit: int, *, cache: bool, dirty: bool) -> Columns:
        """Take at most `limit` changed rows, encoded, as sorted columns.

        They stay in memory for reads, if the state is cached and with `cache`; `dirty` if the
        table does not get them now.
        """
        rows = self._take(self._slice(limit))
        columns = self._columns(rows)
        if dirty:
            self._dirty.add(rows)
        elif self._dirty:
            self._dirty.discard(rows)
        if not (cache and self._cached):
            self.is_complete = False
            self._rows.remove(columns[0])
        elif not dirty:
            self._leave(rows, columns[1])
        return columns

    def _slice(self, limit: int) -> int:
        return min(limit, max(1, int(SLICE_BYTES / max(1.0, self.size.bytes))))

    def take_dirty(self, limit: int) -> Columns:
        """At most `limit` rows for the table, with their newest values, as sorted columns."""
        rows = self._dirty.take(self._slice(limit))
        columns = self._columns(rows)
        self._leave(rows, columns[1])
        return columns

    def _leave(self, rows: list[BufferedRow], values: list[bytes | None]) -> None:
        """The table is about to get these rows: deletions and large ones leave memory at once."""
        if None in values or max(map(len, cast("list[bytes]", values)), default=0) >= LARGE_ROW:
            leaving, staying = list[BufferedRow](), list[BufferedRow]()
            for row, value in zip(rows, values, strict=True):
                leaves = not row.changed and (value is None or len(value) >= LARGE_ROW)
                (leaving if leaves else staying).append(row)
                self.is_complete = self.is_complete and not (leaves and value)
            self._rows.remove(map(row_key, leaving))
            rows = staying
        self._rows.may_leave(rows)

    def _columns(self, rows: list[BufferedRow]) -> Columns:
        values = [row.value for row in rows]
        present = [value for value in values if value is not None]
        encoded: list[bytes | None] = [*self._encode_many(present)]
        if len(present) < len(values):
            of_value = iter(encoded)
            encoded = [None if value is None else next(of_value) for value in values]
        return [row.key for row in rows], encoded

    def _take(self, limit: int) -> list[BufferedRow]:
        """Changed rows by their keys, which count as unchanged from now on."""
        rows = self._changed.take(limit)
        if self._by_group is not None:
            count = sharing([row.value for row in rows], limit)
            self._by_group.put_back(rows[count:])
            del rows[count:]
        for row in rows:
            row.changed = False
        return rows

    def _count(self, updates: int, key: bytes, value: Any) -> None:
        """Account for rows that were put, of which this is one."""
        self.updates += updates
        self._written.add(updates * self._sample(key, value))

    def _sample(self, key: bytes, value: Any) -> int:
        size = self.size.sample(key, value)
        self._sample_every = until_next_sample(size)
        return size

    def _stored(self, keys: list[bytes]) -> list[Any | None]:
        """Values of rows that are not in memory."""
        if self.is_complete:
            return list(repeat(None, len(keys)))
        encoded = self._table.get_many(keys)
        decode = self._decode
        if None in encoded:
            return [None if data is None else decode(data) for data in encoded]
        return list(map(decode, cast("list[bytes]", encoded)))
