"""Which rows an operator reads for the keys of a buffer, as far as its states tell: pure.

Only what is read early has to be right for speed; a row that is not named here is fetched when it
is read.
"""

from collections.abc import Callable, Iterable
from itertools import product, starmap
from operator import add
from typing import Final, NamedTuple

from tidelog.changelog.change import prefix_end
from tidelog.checkpoint.manifest import StateInfo
from tidelog.state.key_groups import KeyGroupRange, encode_key, key_group
from tidelog.state.registry import POSITIONS

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
        self._positions: list[bytes] = []
        for info in states:
            state = info.id.to_bytes(2, "big")
            if info.kind in _ONE_ROW:
                self._one_row.append(state)
            elif info.name == POSITIONS:
                self._positions.append(state)
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

    def at_start(self, groups: KeyGroupRange, key_groups: int) -> list[tuple[bytes, bytes]]:
        """The ranges that are looked at before the first record: the timers of these of all key
        groups, and the positions of a program.
        """
        prefixes = list(starmap(add, product(groups.encoded(), self._by_time)))
        no_key = encode_key(None)
        group = key_group(no_key, key_groups)
        if group in groups:
            prefixes += [group.to_bytes(2, "big") + state + no_key for state in self._positions]
        return [(prefix, prefix_end(prefix)) for prefix in prefixes]
