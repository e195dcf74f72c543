"""The rows of one state in memory: what changed since the last flush, and what reads may want.

Invariants:
- a read sees rows changed since the last flush or cached, else the table;
- rows that a flush gave to the log alone are dirty: they stay here until the table has them;
- a row that was deleted stays here no longer than until the table has deleted it;
- while the rows are whole, all of the state's rows are here, and the table is not asked;
- within one flush a row appears at most once, with its newest value: a hot key costs one log
  entry per flush, not one per update;
- rows that are scanned leave the buffer in the order in which they were put, or in that of their
  keys, so of the numbered rows of a list the older ones always leave first;
- objects are serialized once, at the flush; an object handed in is never changed afterwards
  unless the same row is put again.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any, Final, cast

from tidelog.changelog.row_memory import RowSize
from tidelog.table.port import Table

_ABSENT: Final = object()
_FEW: Final = 64
"""Up to this many new keys are sorted in one by one, which beats a merge of the whole order."""

_IMMUTABLE: Final = frozenset({type(None), bool, int, float, str, bytes})

SAMPLE_EVERY: Final = 64
"""Rows put one by one, of which one is measured."""

_GROUP_BYTES: Final = 2
SLICE_BYTES: Final = 2 << 20
"""Most bytes of a state's rows that one step of a flush takes, for large rows."""

Columns = tuple[list[bytes], list[bytes | None]]
"""Row keys, ascending, and their encoded values, None for a row that was deleted."""
Encode = Callable[[Any], bytes]
EncodeMany = Callable[[list[Any]], list[bytes]]
Decode = Callable[[bytes], Any]


class StateRows:
    """The rows of one state of one subtask; values are the state's objects, None is a delete.

    `_values` holds the newest value of changed, dirty and cached rows alike, so a read is one
    look-up; `_changed` has those that the log does not have yet, once more for a flush to take them
    without looking them up, and `_dirty` names which of the others the table does not have.
    """

    __slots__ = (
        "_cached",
        "_changed",
        "_decode",
        "_dirty",
        "_dropped",
        "_encode",
        "_encode_many",
        "_fresh",
        "_order",
        "_scanned",
        "_size",
        "_table",
        "_values",
        "_whole",
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
        whole: bool = False,
        encode_many: EncodeMany | None = None,
    ) -> None:
        self._table = table
        self._encode = encode
        self._encode_many = encode_many or (lambda values: list(map(encode, values)))
        self._decode = decode
        self._cached = cached
        self._whole = whole and cached
        self._values: dict[bytes, Any] = {}
        self._dropped: list[dict[bytes, Any]] = []
        """Rows that are not cached any more and still in memory."""
        self._changed: dict[bytes, Any] = {}
        self._dirty: set[bytes] = set()
        self._size = RowSize()
        self._scanned = scanned
        # Only states that are scanned keep their changed keys in order, and only when one asks.
        self._order: list[bytes] = []
        self._fresh: list[bytes] = []
        self.updates = 0
        """Rows put and deleted since the last flush, each time counted."""

    def __len__(self) -> int:
        """Rows changed since the last flush."""
        return len(self._changed)

    @property
    def memory_bytes(self) -> int:
        """About how much memory the changed and the cached rows take."""
        rows = len(self._values)
        for dropped in self._dropped:
            rows += len(dropped)
        return int(rows * self._size.bytes)

    @property
    def dirty(self) -> int:
        """Rows that the log has and the table does not."""
        return len(self._dirty)

    @property
    def cached_bytes(self) -> int:
        """About how much memory the rows take that a flush has left here."""
        return int((len(self._values) - len(self._changed)) * self._size.bytes)

    def drop_cached(self) -> None:
        """Forget the rows that the table has as well; their memory is given back by `free`."""
        if self._values:
            self._dropped.append(self._values)
            self._whole, values = False, self._values
            self._values = {row: values[row] for row in self._changed.keys() | self._dirty}

    def clear(self) -> None:
        """Forget everything: nothing is read or flushed any more."""
        self._values, self._dropped, self._changed, self._dirty = {}, [], {}, set()

    def free(self, most: int) -> bool:
        """Give back the memory of so many dropped rows; whether there are more."""
        if not self._dropped:
            return False
        rows = self._dropped[-1]
        if len(rows) > most:
            for _ in range(most):
                rows.popitem()
        else:
            self._dropped.pop()
        return bool(self._dropped)

    def get(self, key: bytes) -> Any | None:
        """The row's newest value, or None."""
        value = self._values.get(key, _ABSENT)
        if value is _ABSENT:
            if self._whole:
                return None
            stored = self._table.get(key)
            value = None if stored is None else self._decode(stored)
            if not self._cached:
                return value
            if len(self._values) % SAMPLE_EVERY == 0:
                self._size.sample(key, value)
            self._values[key] = value
        return value

    def changed(self, key: bytes) -> Any | None:
        """The row's value if it was put since the last flush, else None."""
        return self._changed.get(key)

    def newest(self, key: bytes, stored: bytes) -> Any | None:
        """The row's newest value, where the table has `stored`; None if it is deleted since."""
        here = key in self._changed or key in self._dirty
        return self._values[key] if here else self._decode(stored)

    def get_many(self, keys: list[bytes]) -> list[Any | None]:
        """Newest values in the order of `keys`; one table access for all that are not here."""
        if self._whole:
            return list(map(self._values.get, keys))
        get, absent = self._values.get, _ABSENT
        found = [get(key, absent) for key in keys]
        cold = [at for at, value in enumerate(found) if value is absent]
        if len(cold) == len(keys):
            return self._load(keys)
        if cold:
            for at, value in zip(cold, self._load([keys[at] for at in cold]), strict=True):
                found[at] = value
        return found

    def put(self, key: bytes, value: Any) -> None:
        """Set a row."""
        if self._scanned and key not in self._changed:
            self._fresh.append(key)
        self._values[key] = value
        self._changed[key] = value
        if self.updates % SAMPLE_EVERY == 0:
            self._size.sample(key, value)
        self.updates += 1

    def put_many(self, rows: Mapping[bytes, Any]) -> None:
        """Set many rows at once."""
        if self._scanned:
            self._fresh += rows.keys() - self._changed.keys()
        self._values.update(rows)
        self._changed.update(rows)
        self.updates += len(rows)
        if rows:
            self._size.sample(*next(iter(rows.items())))

    def delete(self, key: bytes) -> None:
        """Remove a row; removing an absent one is no error."""
        self.put(key, None)

    def delete_many(self, keys: Iterable[bytes]) -> None:
        """Remove many rows at once."""
        self.put_many(dict.fromkeys(keys))

    def scan(
        self, lower: bytes, upper: bytes, *, copied: bool = False
    ) -> Iterator[tuple[bytes, Any]]:
        """Rows with lower <= key < upper in key order, as they are when the scan starts.

        With `copied` the values are no objects of the buffer: the caller may change them.
        """
        assert self._scanned, "the state was not declared as scanned"
        order = self._ordered()
        changed = order[bisect_left(order, lower) : bisect_left(order, upper)]
        rows = self._here(changed, copied=copied)
        return _merge(rows, self._table.scan(lower, upper), self._decode)

    def here(self) -> list[bytes]:
        """The rows for `scan_with`: those that the table may lack, in no order."""
        return list(self._values) if self._whole else [*self._changed, *self._dirty]

    def scan_with(
        self, here: list[bytes], lower: bytes, upper: bytes
    ) -> Iterator[tuple[bytes, Any]]:
        """As `scan`, for a state that is not scanned; `here` are the rows of the range among those
        of `here()`, since which no row was put.
        """
        if self._whole:
            rows = self._here(sorted(here), copied=True)
            return (row for row in rows if row[1] is not None)
        # What has come to the table since then may have left memory.
        lacking = [row for row in set(here) if row in self._dirty or row in self._changed]
        rows = self._here(sorted(lacking), copied=True)
        return _merge(rows, self._table.scan(lower, upper), self._decode)

    def _here(self, keys: list[bytes], *, copied: bool) -> list[tuple[bytes, Any]]:
        """Rows that are in memory; with `copied` the values are no objects of the buffer."""
        values = list(map(self._values.__getitem__, keys))
        if copied and not set(map(type, values)) <= _IMMUTABLE:
            encode, decode = self._encode, self._decode
            values = [None if value is None else decode(encode(value)) for value in values]
        return list(zip(keys, values, strict=True))

    def drain(self, most: int, *, cache: bool, dirty: bool) -> Columns:
        """Take at most `most` changed rows, encoded, as sorted columns.

        They stay in memory for reads, if the state is cached and with `cache`; `dirty` if the
        table does not get them now.
        """
        keys, values = self._take(min(most, max(1, int(SLICE_BYTES / max(1.0, self._size.bytes)))))
        encoded = self._encoded(values)
        if dirty:
            self._dirty.update(keys)
        elif self._dirty:
            self._dirty.difference_update(keys)
        if not (cache and self._cached):
            self._whole = False
            for key in keys:
                del self._values[key]
        elif not dirty:
            self._forget_deleted(keys, encoded)
        return keys, encoded

    def take_dirty(self, most: int) -> Columns:
        """At most `most` rows for the table, with their newest values, as sorted columns."""
        pop = self._dirty.pop
        keys, encoded = self._columns(sorted([pop() for _ in range(min(most, len(self._dirty)))]))
        self._forget_deleted(keys, encoded)
        return keys, encoded

    def _forget_deleted(self, keys: list[bytes], encoded: list[bytes | None]) -> None:
        """Give up rows that the table is about to delete as well: there may be ever new ones."""
        if None in encoded:
            for key, value in zip(keys, encoded, strict=True):
                if value is None and key not in self._changed:
                    del self._values[key]

    def dirty_columns(self) -> Columns:
        """The rows that the log has and the table does not, with their newest values."""
        return self._columns(sorted(self._dirty))

    def _columns(self, keys: list[bytes]) -> Columns:
        return keys, self._encoded(list(map(self._values.__getitem__, keys)))

    def _encoded(self, values: list[Any]) -> list[bytes | None]:
        here = [value for value in values if value is not None]
        encoded = self._encode_many(here)
        if len(here) == len(values):
            return cast("list[bytes | None]", encoded)
        of_value = iter(encoded)
        return [None if value is None else next(of_value) for value in values]

    def _take(self, most: int) -> tuple[list[bytes], list[Any]]:
        """Changed rows, which count as unchanged from now on."""
        if not self._scanned:
            pop = self._changed.popitem
            rows = [pop() for _ in range(min(most, len(self._changed)))]
            rows.sort(key=itemgetter(0))
            if not self._changed:
                # An emptied dict keeps the room of its largest size, which every look has to pass.
                self._changed = {}
            return [key for key, _ in rows], [value for _, value in rows]
        keys, order = self._order[:most], self._order
        del order[:most]
        fresh = most - len(keys)
        keys += self._fresh[:fresh]
        del self._fresh[:fresh]
        keys.sort()
        values = list(map(self._values.__getitem__, keys))
        count = _sharing(values, most)
        self._order[:0] = keys[count:]
        del keys[count:], values[count:]
        for key in keys:
            del self._changed[key]
        return keys, values

    def _ordered(self) -> list[bytes]:
        """The changed keys in order."""
        order, fresh = self._order, self._fresh
        if len(fresh) <= _FEW:
            for key in fresh:
                insort(order, key)
        else:
            # Two ascending runs: the second sort is a merge.
            order += sorted(fresh)
            order.sort()
        self._fresh = []
        return order

    def _load(self, keys: list[bytes]) -> list[Any | None]:
        stored = self._table.get_many(keys)
        decode = self._decode
        if None in stored:
            return [None if data is None else decode(data) for data in stored]
        return list(map(decode, cast("list[bytes]", stored)))


def _sharing(values: list[Any], most: int) -> int:
    """How many of the first values have so many elements together at most, if they are lists."""
    elements = 0
    for count, value in enumerate(values):
        elements += len(value) if type(value) is list else 1
        if elements > most:
            return max(1, count)
    return len(values)


def _merge(
    fresh: Iterable[tuple[bytes, Any]], stored: Iterator[tuple[bytes, bytes]], decode: Decode
) -> Iterator[tuple[bytes, Any]]:
    """Sorted union in which a fresh row hides the stored one and None hides both."""
    row = next(stored, None)
    for key, value in fresh:
        while row is not None and row[0] < key:
            yield row[0], decode(row[1])
            row = next(stored, None)
        if row is not None and row[0] == key:
            row = next(stored, None)
        if value is not None:
            yield key, value
    while row is not None:
        yield row[0], decode(row[1])
        row = next(stored, None)
