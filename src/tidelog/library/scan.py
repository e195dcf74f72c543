"""Scans: the keys of one state with their values, in the order in which keys are stored.

Rows are stored by key group, so the order of keys is a merge of all groups, each of which is read
a piece at a time. Invariants: memory is a piece for each key group, and the keys that the table
lacked when the scan began, whatever the size of the state; the lock is held for one piece at a
time; a piece is what table and write buffer hold at one moment; a key that is there all the time
comes once, with the value that it has when its piece is read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Final

from tidelog.changelog.change import ROW_PREFIX_BYTES, prefix_end
from tidelog.errors import ConfigError
from tidelog.library.steps import Steps
from tidelog.state.backend import KeyedBackend
from tidelog.state.handles.keyed import KeyedRows, ListHandle, MapHandle
from tidelog.state.key_groups import checked_key, decode_key, first_value
from tidelog.state.key_prefixes import KeyPrefix
from tidelog.state.positions import NO_KEY
from tidelog.state.stored_states import NamedState

_POSITION_BYTES: Final = 8
"""The number of a list's row, after the key."""
_FIRST_PIECE: Final = 16
_LARGEST_PIECE: Final = 256
_PIECE_BYTES: Final = 64 << 10

Row = tuple[bytes, Any]
"""The key of a row without key group and state id, and what the state keeps there."""


@dataclass(frozen=True, slots=True)
class ScanPart:
    """One state in some key groups, and how to get at it."""

    steps: Steps
    backend: KeyedBackend
    named_state: NamedState

    @property
    def keyed(self) -> KeyedRows:
        return self.named_state.state.keyed

    @property
    def ordered(self) -> bool:
        """Whether the write buffer has the rows in order, so that it is read with the table."""
        return isinstance(self.named_state.state, ListHandle | MapHandle)

    def unsettled_keys(self) -> list[bytes]:
        """The keys of the rows that the table lacks now, sorted, where the buffer has no order."""
        if self.ordered:
            return []
        return sorted(set(self.steps.read(self.keyed.rows.unsettled_keys)))


BEGINNING: Final = object()
"""Where a scan begins that goes on after no key."""


class Scan:
    """The keys of a state with their values."""

    def __init__(self, parts: Sequence[ScanPart], prefix: Any, after: Any) -> None:
        """Raises ConfigError for a prefix that is none."""
        self._parts, self.ordered = parts, parts[0].ordered
        self._prefix = None if prefix is None else KeyPrefix.of(prefix)
        self._ambiguous = after is None and self._prefix is None
        if after is ...:
            after = None
        elif after is None:
            after = BEGINNING
        self._begin = b"" if after is BEGINNING else checked_key("after=", after)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """(key, value) of all keys, or (key, entry's key, value) of all entries of maps.

        What is there at this call is in it; the iterator raises what operations raise.
        """
        unsettled = [part.unsettled_keys() for part in self._parts]
        if self._ambiguous:
            self._refuse_key_none(unsettled)
        streams = [stream.rows(self._prefix) for stream in self._streams(unsettled, self._begin)]
        return _program_rows(self._parts[0].named_state, merge(*streams, key=itemgetter(0)))

    def _streams(self, unsettled: Sequence[list[bytes]], begin: bytes) -> Iterator["_Group"]:
        for part, keys in zip(self._parts, unsettled, strict=True):
            for group in range(part.backend.owned.first, part.backend.owned.last + 1):
                yield _Group(part, group.to_bytes(2, "big"), begin, keys)

    def _refuse_key_none(self, unsettled: Sequence[list[bytes]]) -> None:
        """Who passes None may mean the beginning, or the key at which the last page ended."""
        if any(stream.has(NO_KEY) for stream in self._streams(unsettled, b"")):
            raise ConfigError(
                "after=None of a scan",
                expected="no key None in the state: it might be the end of the last page",
                found="one",
                action="leave after= out to begin, and pass after=... (an Ellipsis) to go on after "
                "the key None",
            )


def _program_rows(named_state: NamedState, rows: Iterator[Row]) -> Iterator[tuple[Any, ...]]:
    """What a program sees of rows; what has expired is left out."""
    state, key_of, value_of = named_state.state, named_state.entry, named_state.value
    if isinstance(state, ListHandle):
        for key, pieces in groupby(rows, lambda row: row[0][:-_POSITION_BYTES]):
            encoded = chain.from_iterable(piece for _, piece in pieces)
            alive = filter(None, map(state.element.read, encoded))
            if elements := [value_of(element) for element in alive]:
                yield decode_key(key), elements
        return
    for key, row_value in rows:
        value = state.keyed.codec.read(row_value)
        if value is not None and isinstance(state, MapHandle):
            owner, entry = first_value(key)
            yield decode_key(owner), key_of(state.user_key.decode(entry)), value_of(value)
        elif value is not None:
            yield decode_key(key), value_of(value)


@dataclass(slots=True)
class _Group:
    """Reads the rows of one key group."""

    part: ScanPart
    group: bytes
    begin: bytes
    """A key, encoded, before which and of which nothing is read."""
    unsettled: list[bytes]
    """Sorted keys of rows besides those of the table."""

    def rows(self, prefix: KeyPrefix | None) -> Iterator[Row]:
        """All rows, or those that have the prefix, in the order of keys."""
        start = self.part.keyed.row_of(self.group, b"")
        if prefix is None:
            yield from self._between(start, prefix_end(start))
            return
        length: int | None = prefix.length
        while length is not None:
            first = start + prefix.lower(length)
            yield from self._between(first, prefix_end(first))
            longer = self._read(start + prefix.longer(length), prefix_end(start), 1, raw=True)
            after = longer[0]
            length = prefix.next_length(after[0][0] if after else None, length)

    def has(self, key: bytes) -> bool:
        """Whether there is a row of this key."""
        start = self.part.keyed.row_of(self.group, key)
        return next(self._between(start, prefix_end(start)), None) is not None

    def _between(self, lower: bytes, upper: bytes) -> Iterator[Row]:
        if self.begin:
            lower = max(lower, prefix_end(self.part.keyed.row_of(self.group, self.begin)))
        limit = _FIRST_PIECE
        while lower < upper:
            piece, last = self._read(lower, upper, limit)
            yield from piece
            if last is None:
                return
            # A list that is replaced meanwhile has rows of later numbers.
            lower = prefix_end(last[:-_POSITION_BYTES]) if self._is_list else last + b"\x00"
            limit = min(2 * limit, _LARGEST_PIECE)

    @property
    def _is_list(self) -> bool:
        return isinstance(self.part.named_state.state, ListHandle)

    def _read(
        self, lower: bytes, upper: bytes, limit: int, *, raw: bool = False
    ) -> tuple[list[Row], bytes | None]:
        return self.part.steps.read(self._piece, lower, upper, limit, raw)

    def _piece(
        self, lower: bytes, upper: bytes, limit: int, raw: bool
    ) -> tuple[list[Row], bytes | None]:
        """Rows of the range, and the last one that was read; None when it was the last of all.

        All rows of a list are in one piece. With `raw` rows count that were deleted meanwhile.
        """
        is_list = self._is_list
        piece: list[Row] = []
        count, size, last = 0, 0, b""
        for row, value in self._newest(lower, upper):
            full = count >= limit or size >= _PIECE_BYTES
            if full and not (is_list and row[:-_POSITION_BYTES] == last[:-_POSITION_BYTES]):
                return piece, last
            count, size, last = count + 1, size + _size(value), row
            if raw or value is not None:
                key = row[ROW_PREFIX_BYTES:]
                piece.append((key, list(value) if is_list and value else value))
        return piece, None

    def _newest(self, lower: bytes, upper: bytes) -> Iterator[tuple[bytes, Any]]:
        """Rows with their newest values, None for one that was deleted."""
        rows = self.part.keyed.rows
        if self.part.ordered:
            return rows.scan(lower, upper)
        return rows.look_through(lower, upper, self.unsettled)


def _size(value: Any) -> int:
    """About how many bytes a value takes, where that is much."""
    if isinstance(value, list | tuple):
        return sum(map(_size, value))
    return len(value) if isinstance(value, bytes | str) else 0
