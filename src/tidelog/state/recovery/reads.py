"""Which rows an operator reads for the keys of a buffer, as far as its states tell: pure.

Only what is read early has to be right for speed; a row that is not named here is fetched when it
is read.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from tidelog.changelog.change import prefix_end
from tidelog.checkpoint.manifest import StateInfo

_ONE_ROW: Final = frozenset({"value", "aggregate", "sessions", "count-window"})
"""Kinds of states that have one row for a key."""
_ROWS: Final = frozenset({"list", "map"})
"""Kinds whose rows of a key are a range."""
_TIMERS: Final = "timers"
_BY_TIME: Final = "-by-time"
SCANNED_AT_THE_START: Final = frozenset({"timed-records", "timed-marks", "timed-batches"})
"""Kinds whose rows an operator looks through before its first record."""
FIRST_ROWS: Final = 8
"""Rows of a range that are fetched early."""


class Reads(NamedTuple):
    """Keys of rows, and ranges of keys of which the first rows are read."""

    keys: list[bytes]
    ranges: list[tuple[bytes, bytes]]


class KeyReads:
    """What operators with these states read."""

    def __init__(self, states: Iterable[StateInfo]) -> None:
        self._one_row: list[bytes] = []
        self._rows: list[bytes] = []
        self._by_time: list[bytes] = []
        for info in states:
            state = info.id.to_bytes(2, "big")
            if info.kind in _ONE_ROW:
                self._one_row.append(state)
            elif info.kind == _TIMERS and info.name.endswith(_BY_TIME):
                self._by_time.append(state)
            elif info.kind in _ROWS or info.kind == _TIMERS:
                self._rows.append(state)

    def of(self, group_keys: Iterable[bytes], in_memory: Callable[[bytes], bool]) -> Reads:
        """For the records of these keys, given after their key groups, in a buffer."""
        reads = Reads([], [])
        for group_key in dict.fromkeys(group_keys):
            group, key = group_key[:2], group_key[2:]
            for state in self._one_row:
                row = group + state + key
                if not in_memory(row):
                    reads.keys.append(row)
            for state in self._rows:
                prefix = group + state + key
                reads.ranges.append((prefix, prefix_end(prefix)))
        return reads

    def of_timers(self, groups: Sequence[bytes]) -> Reads:
        """For the first look at the timers of these key groups."""
        reads = Reads([], [])
        for state in self._by_time:
            for group in groups:
                prefix = group + state
                reads.ranges.append((prefix, prefix_end(prefix)))
        return reads
