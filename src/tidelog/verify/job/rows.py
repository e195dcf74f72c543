"""The rows of a partition's table: their fingerprint per key group, and what breaks rules of rows.

Invariants: rows are looked at in chunks and never kept; a row that breaks a rule is counted, and
the first of each kind is reported. No function of Python is called for a row of a state whose keys
are whole values, only for runs of rows with a key group and a state in common.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Final

import google_crc32c
import msgspec

from tidelog.changelog.change import ROW_PREFIX_BYTES
from tidelog.checkpoint.manifest import StateInfo
from tidelog.ids import KeyGroup
from tidelog.state.key_groups import KeyGroupRange, first_value, key_group
from tidelog.state.timed_rows import BATCHES, keys_of
from tidelog.verify.fingerprint import Fingerprint, Row, columns, combined, of_columns
from tidelog.verify.results import RowViolation

_NUMBER_BYTES: Final = 8
"""A position, or a time."""


@dataclass(slots=True)
class RowScan:
    """Takes all rows of one partition's table, in the order of their keys."""

    key_groups: int
    owned: KeyGroupRange
    states: Iterable[StateInfo]
    groups: dict[int, Fingerprint] = field(default_factory=dict)
    """Fingerprint of every key group that has rows."""
    violations: dict[str, RowViolation] = field(default_factory=dict)
    _user_key: dict[int, Callable[[bytes], bytes] | None] = field(init=False, default_factory=dict)
    _batches: set[int] = field(init=False, default_factory=set)
    """States whose rows have the keys in their values."""

    def __post_init__(self) -> None:
        for info in self.states:
            self._user_key[info.id] = _user_key(info)
            if info.kind == BATCHES:
                self._batches.add(info.id)

    @property
    def total(self) -> Fingerprint:
        return combined(self.groups.values())

    def copy(self) -> "RowScan":
        """The same rows so far; what either takes from now on is nothing to the other."""
        return replace(self, groups=dict(self.groups), violations=dict(self.violations))

    def empty(self) -> "RowScan":
        """A scan of the same partition that has taken nothing."""
        return replace(self, groups={}, violations={})

    def take(self, rows: Iterable[Row]) -> None:
        """Look at all rows; raises what reading them raises."""
        for keys, values in columns(rows):
            self.take_columns(keys, values)

    def take_columns(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Look at rows in the order of their keys."""
        for prefix, run in _runs(keys):
            run_keys, run_values = keys[run], values[run]
            self._check(prefix, run_keys, run_values)
            group = int.from_bytes(prefix[:2], "big")
            fingerprint = of_columns(run_keys, run_values)
            self.groups[group] = self.groups.get(group, Fingerprint()) + fingerprint

    def remove(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Take rows out, in the order of their keys; violations among them stay counted."""
        for prefix, run in _runs(keys):
            group = int.from_bytes(prefix[:2], "big")
            fingerprint = of_columns(keys[run], values[run])
            self.groups[group] = self.groups.get(group, Fingerprint()) - fingerprint

    def _check(self, prefix: bytes, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Look at rows whose keys have a prefix in common."""
        group = KeyGroup(int.from_bytes(prefix[:2], "big"))
        state = int.from_bytes(prefix[2:], "big")
        rule = self._rule_of_run(prefix, group, state)
        if rule is not None:
            self._violation(rule, keys)
            return
        user_key = self._user_key[state]
        if state in self._batches:
            rows = zip(keys, values, strict=True)
            astray = [key for key, data in rows if not self._all_belong(data, group)]
        else:
            astray = [] if user_key is None else self._astray(user_key, keys, group)
        if astray:
            self._violation("every key in the key group of its hash", astray)

    def _rule_of_run(self, prefix: bytes, group: KeyGroup, state: int) -> str | None:
        """The rule that all rows with this prefix break."""
        if len(prefix) < ROW_PREFIX_BYTES:
            return f"row keys of {ROW_PREFIX_BYTES} bytes or more"
        if group not in self.owned:
            return f"rows of key groups {self.owned.first} to {self.owned.last}"
        return None if state in self._user_key else "rows of states that the manifest names"

    def _astray(
        self, user_key: Callable[[bytes], bytes], keys: Sequence[bytes], group: KeyGroup
    ) -> list[bytes]:
        """The keys that belong into another key group than this one."""
        if user_key is _WHOLE:
            # Almost always the answer for all keys, and twice as fast.
            crc, groups = google_crc32c.value, self.key_groups
            if {crc(key[ROW_PREFIX_BYTES:]) % groups for key in keys} == {group}:
                return []
        return [key for key in keys if not self._belongs(user_key, key, group)]

    def _all_belong(self, batch: bytes, group: KeyGroup) -> bool:
        try:
            return {key_group(key, self.key_groups) for key in keys_of(batch)} == {group}
        except msgspec.MsgspecError:
            return False

    def _belongs(self, user_key: Callable[[bytes], bytes], row_key: bytes, group: KeyGroup) -> bool:
        try:
            return key_group(user_key(row_key[ROW_PREFIX_BYTES:]), self.key_groups) == group
        except ValueError:  # no msgpack
            return False

    def _violation(self, rule: str, row_keys: Sequence[bytes]) -> None:
        first = f"row {row_keys[0][:64].hex()}"
        violation = self.violations.get(rule, RowViolation(rule, first, 0))
        self.violations[rule] = replace(violation, rows=violation.rows + len(row_keys))


def _runs(keys: Sequence[bytes]) -> Iterator[tuple[bytes, slice]]:
    """Neighbours with a prefix in common, of keys in their order."""
    start = 0
    while start < len(keys):
        prefix = _PREFIX(keys[start])
        end = bisect_right(keys, prefix, start, key=_PREFIX)
        yield prefix, slice(start, end)
        start = end


_PREFIX: Final = itemgetter(slice(ROW_PREFIX_BYTES))


_WHOLE: Final = itemgetter(slice(None))
_WITHOUT_NUMBER: Final = itemgetter(slice(None, -_NUMBER_BYTES))
_WITHOUT_TWO_NUMBERS: Final = itemgetter(slice(None, -2 * _NUMBER_BYTES))
_AFTER_NUMBER: Final = itemgetter(slice(_NUMBER_BYTES, None))
_BETWEEN_NUMBERS: Final = itemgetter(slice(_NUMBER_BYTES, -_NUMBER_BYTES - 12))


def _user_key(info: StateInfo) -> Callable[[bytes], bytes] | None:
    """How to cut the user's key out of a state's own key; None for kinds of a newer release."""
    if info.kind == "timers":
        return _AFTER_NUMBER if info.name.endswith("-by-time") else _WITHOUT_NUMBER
    return _CUTS.get(info.kind)


_CUTS: Final[dict[str, Callable[[bytes], bytes]]] = {
    **dict.fromkeys(("value", "aggregate", "splits", "sessions", "count-window"), _WHOLE),
    **dict.fromkeys(("list", "window-aggregate", "earlier-sessions"), _WITHOUT_NUMBER),
    **dict.fromkeys(("timed-records", "timed-marks"), _BETWEEN_NUMBERS),
    "window-records": _WITHOUT_TWO_NUMBERS,
    "map": lambda state_key: first_value(state_key)[0],
}
