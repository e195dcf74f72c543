"""What every row of a restored table must be, and the fingerprints of its key groups.

Invariants: rows are looked at one at a time and never kept; a row that breaks a rule is counted,
and the first of each kind is reported.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from tidelog.changelog.change import ROW_PREFIX_BYTES
from tidelog.checkpoint.manifest import StateInfo
from tidelog.ids import KeyGroup
from tidelog.state.key_groups import KeyGroupRange, key_group
from tidelog.state.schema.msgpack import first_value
from tidelog.verify.fingerprint import Fingerprint, combined, fingerprint

Row = tuple[bytes, bytes]

_NUMBER_BYTES: Final = 8
"""A position, or a time."""


@dataclass(slots=True)
class Misfit:
    """Rows that break one rule."""

    expected: str
    first: str
    """The first of these rows."""
    rows: int = 1

    @property
    def found(self) -> str:
        """What to report."""
        return self.first if self.rows == 1 else f"{self.first}, and {self.rows - 1} rows more"


@dataclass(slots=True)
class RowScan:
    """Takes all rows of one partition's table, in the order of their keys."""

    key_groups: int
    owned: KeyGroupRange
    states: Iterable[StateInfo]
    groups: dict[int, Fingerprint] = field(default_factory=dict)
    """Fingerprint of every key group that has rows."""
    misfits: dict[str, Misfit] = field(default_factory=dict)
    _user_key: dict[int, Callable[[bytes], bytes] | None] = field(init=False)

    def __post_init__(self) -> None:
        self._user_key = {info.id: _user_key(info) for info in self.states}

    @property
    def total(self) -> Fingerprint:
        """Fingerprint of the whole table."""
        return combined(self.groups.values())

    def take(self, rows: Iterable[Row]) -> None:
        """Look at all rows; raises what reading them raises."""
        for prefix, run in groupby(rows, _prefix):
            group = int.from_bytes(prefix[:2], "big")
            found = fingerprint(self._looked_at(prefix, run))
            self.groups[group] = self.groups.get(group, Fingerprint()) + found

    def _looked_at(self, prefix: bytes, rows: Iterable[Row]) -> Iterator[Row]:
        """The same rows, which have a prefix in common."""
        group = KeyGroup(int.from_bytes(prefix[:2], "big"))
        state = int.from_bytes(prefix[2:], "big")
        rule = self._rule_of_run(prefix, group, state)
        user_key = None if rule else self._user_key[state]
        for row in rows:
            if rule is not None:
                self._misfit(rule, row[0])
            elif user_key is not None and not self._belongs(user_key, row[0], group):
                self._misfit("every key in the key group of its hash", row[0])
            yield row

    def _rule_of_run(self, prefix: bytes, group: KeyGroup, state: int) -> str | None:
        """The rule that all rows with this prefix break."""
        if len(prefix) < ROW_PREFIX_BYTES:
            return f"row keys of {ROW_PREFIX_BYTES} bytes or more"
        if group not in self.owned:
            return f"rows of key groups {self.owned.first} to {self.owned.last}"
        return None if state in self._user_key else "rows of states that the manifest names"

    def _belongs(self, user_key: Callable[[bytes], bytes], row_key: bytes, group: KeyGroup) -> bool:
        try:
            return key_group(user_key(row_key[ROW_PREFIX_BYTES:]), self.key_groups) == group
        except ValueError:  # no msgpack
            return False

    def _misfit(self, rule: str, row_key: bytes) -> None:
        known = self.misfits.get(rule)
        if known is None:
            self.misfits[rule] = Misfit(rule, f"row {row_key[:64].hex()}")
        else:
            known.rows += 1


def _prefix(row: Row) -> bytes:
    return row[0][:ROW_PREFIX_BYTES]


def _user_key(info: StateInfo) -> Callable[[bytes], bytes] | None:
    """How to cut the user's key out of a state's own key; None for kinds of a newer release."""
    match info.kind:
        case "value" | "aggregate" | "splits":
            return _whole
        case "list" | "window-aggregate":
            return _without_number
        case "window-records":
            return _without_two_numbers
        case "map":
            return _first
        case "timers":
            return _behind_number if info.name.endswith("-by-time") else _without_number
    return None


def _whole(own: bytes) -> bytes:
    return own


def _without_number(own: bytes) -> bytes:
    return own[:-_NUMBER_BYTES]


def _without_two_numbers(own: bytes) -> bytes:
    return own[: -2 * _NUMBER_BYTES]


def _behind_number(own: bytes) -> bytes:
    return own[_NUMBER_BYTES:]


def _first(own: bytes) -> bytes:
    return first_value(own)[0]
