"""Scans: the keys of one state with their values, in the order in which keys are stored.

Rows are stored by key group, so the order of keys is a merge of all groups, each of which is read
a piece at a time. Invariants: memory is a piece for each key group, whatever the size of the state;
the lock is held for one piece at a time; a key that is there all the time comes once, with the
value that it has when its piece is read.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from tidelog.changelog.change import ROW_PREFIX_BYTES, prefix_end
from tidelog.errors import ConfigError
from tidelog.library.state_lock import StateLock
from tidelog.library.states import NamedState
from tidelog.state.backend import KeyedBackend
from tidelog.state.handles.keyed import KeyedRows, ListState, MapState
from tidelog.state.key_groups import checked_key, decode_key, encode_key, first_value

_POSITION_BYTES: Final = 8
"""The number of a list's row, after the key."""
_FIRST_PIECE: Final = 16
_LARGEST_PIECE: Final = 256
_PIECE_BYTES: Final = 64 << 10

Row = tuple[bytes, Any]
"""The key of a row without key group and state id, and what the state keeps there."""


_FIXED: Final[Mapping[type, int]] = {str: 31, bytes: -1, tuple: 15}
"""How msgpack begins what keys may begin with: with its length, up to these within the first byte,
in front of values of other types; longer ones come after all of those."""

_FILLERS: Final[Mapping[type, Any]] = {str: "x", bytes: b"x", tuple: (None,)}
"""What is one byte long in each."""


@dataclass(frozen=True, slots=True)
class KeyPrefix:
    """Keys that begin alike: those of one length are neighbours."""

    kind: type
    least: int
    """The length of the prefix."""
    body: bytes
    """What follows the header of each such key."""

    @classmethod
    def of(cls, prefix: Any) -> "KeyPrefix":
        """Raises ConfigError for what nothing begins with."""
        kind = next((each for each in _FIXED if isinstance(prefix, each)), None)
        if kind is None:
            raise ConfigError(
                f"prefix {prefix!r} of a scan",
                expected="a text, bytes or a tuple: the beginning of the keys",
                found=type(prefix).__name__,
                action="leave it out, and take what you want of the scan",
            )
        least = _length(prefix)
        return cls(kind, least, checked_key("prefix", prefix)[len(_header(kind, least)) :])

    def lower(self, length: int) -> bytes:
        """The first key of that length that may begin so."""
        return _header(self.kind, length) + self.body

    def longer(self, length: int) -> bytes:
        """What comes before all keys of the type that are longer."""
        return _header(self.kind, length + 1)

    def next_length(self, found: bytes | None, length: int) -> int | None:
        """The length to look at when `found` is the first row that is `longer`; None: no more."""
        if found is None:
            return None
        key = decode_key(first_value(found)[0])
        if type(key) is self.kind:
            return _length(key)
        fixed = _FIXED[self.kind]
        return fixed + 1 if length < fixed else None


def _length(key: Any) -> int:
    return len(key.encode() if isinstance(key, str) else key)


def _header(kind: type, length: int) -> bytes:
    """What a key of that length begins with."""
    encoded: bytes = encode_key(_FILLERS[kind] * length)
    return encoded[: len(encoded) - length]


@dataclass(frozen=True, slots=True)
class ScanPart:
    """One state in some key groups, and how to get at it."""

    lock: StateLock
    backend: KeyedBackend
    named: NamedState

    @property
    def keyed(self) -> KeyedRows:
        return self.named.state.keyed


def scanned(parts: Sequence[ScanPart], prefix: Any, after: Any) -> Iterator[tuple[Any, ...]]:
    """(key, value) of all keys, or (key, entry's key, value) of all entries of maps.

    Of keys that begin with `prefix`, if it is given, and come later than `after`. Raises
    ConfigError for a prefix that is none; the iterator raises what operations raise.
    """
    wanted = None if prefix is None else KeyPrefix.of(prefix)
    begin = b"" if after is None else checked_key("after=", after)
    streams = [
        _Group(part, group.to_bytes(2, "big"), begin).rows(wanted)
        for part in parts
        for group in range(part.backend.owned.first, part.backend.owned.last + 1)
    ]
    return _shown(parts[0].named, merge(*streams, key=itemgetter(0)))


def _shown(named: NamedState, rows: Iterator[Row]) -> Iterator[tuple[Any, ...]]:
    """What a program sees of rows; what has expired is left out."""
    state, value = named.state, named.value
    match state:
        case ListState():
            read = state.element.read
            for own, pieces in groupby(rows, lambda row: row[0][:-_POSITION_BYTES]):
                held = [element for _, piece in pieces for element in piece]
                alive = [value(found) for each in held if (found := read(each)) is not None]
                if alive:
                    yield decode_key(own), alive
        case MapState():
            for own, held in rows:
                found = state.keyed.codec.read(held)
                if found is not None:
                    key, entry = first_value(own)
                    yield decode_key(key), named.entry(state.user_key.decode(entry)), value(found)
        case _:
            for own, held in rows:
                found = state.keyed.codec.read(held)
                if found is not None:
                    yield decode_key(own), value(found)


@dataclass(slots=True)
class _Group:
    """Reads the rows of one key group."""

    part: ScanPart
    group: bytes
    begin: bytes
    """A key, encoded, before which and of which nothing is read."""

    def rows(self, wanted: KeyPrefix | None) -> Iterator[Row]:
        """All rows, or those whose keys begin as wanted, in the order of keys."""
        start = self.part.keyed.row_of(self.group, b"")
        if wanted is None:
            yield from self._between(start, prefix_end(start))
            return
        length: int | None = wanted.least
        while length is not None:
            first = start + wanted.lower(length)
            yield from self._between(first, prefix_end(first))
            found, _ = self._piece(start + wanted.longer(length), prefix_end(start), 1, raw=True)
            length = wanted.next_length(found[0][0] if found else None, length)

    def _between(self, lower: bytes, upper: bytes) -> Iterator[Row]:
        if self.begin:
            lower = max(lower, prefix_end(self.part.keyed.row_of(self.group, self.begin)))
        most = _FIRST_PIECE
        while lower < upper:
            found, last = self._piece(lower, upper, most)
            yield from found
            if last is None:
                return
            lower, most = last + b"\x00", min(2 * most, _LARGEST_PIECE)

    def _piece(
        self, lower: bytes, upper: bytes, most: int, *, raw: bool = False
    ) -> tuple[list[Row], bytes | None]:
        """Rows of the range, and the last one that was read; None when it was the last of all.

        All rows of a list are in one piece. With `raw` rows count that were deleted meanwhile.
        """
        table, newest = self.part.backend.table, self.part.keyed.rows.newest
        is_list = isinstance(self.part.named.state, ListState)
        found: list[Row] = []
        seen, size, last = 0, 0, b""
        lock = self.part.lock
        with lock.held:
            if lock.busy:
                lock.yield_to_loop()
            for row, stored in table.scan(lower, upper):
                full = seen >= most or size >= _PIECE_BYTES
                if full and not (is_list and row[:-_POSITION_BYTES] == last[:-_POSITION_BYTES]):
                    return found, last
                seen, size, last = seen + 1, size + len(stored), row
                held = newest(row, stored)
                if raw or held is not None:
                    own = row[ROW_PREFIX_BYTES:]
                    found.append((own, list(held) if is_list and held else held))
            return found, None
