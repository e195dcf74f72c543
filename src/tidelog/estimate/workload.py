"""What a job does to its state: the part of an estimate that only its user knows.

Invariants: rates and sizes are those of the whole job, over all its subtasks; a change of a row
counts whether the write buffer combines it with others or not.
"""

from dataclasses import dataclass

from tidelog.changelog.change import CHANGE_OVERHEAD_BYTES, ROW_PREFIX_BYTES
from tidelog.errors import ConfigError
from tidelog.estimate.zipf import expected_distinct


@dataclass(frozen=True, slots=True)
class Workload:
    """Updates of keyed state; sizes in bytes, rates per second."""

    writes_per_s: float
    keys: int
    key_bytes: int = 16
    """Of a user's key as it is encoded."""
    value_bytes: int = 100
    """Of a value as it is encoded."""
    skew: float = 0.0
    """Exponent of the Zipf distribution of the keys; 0: uniform."""
    compression: float = 1.0
    """Size of the log as stored, over its size before compression."""
    state_bytes: int | None = None
    """Of all live rows as the table stores them; None: they do not compress."""

    def __post_init__(self) -> None:
        """Raises ConfigError for figures out of range."""
        _require("the write rate", self.writes_per_s, self.writes_per_s > 0, "more than 0 a second")
        _require("the number of keys", self.keys, self.keys >= 1, "1 or more")
        _require("the bytes of a key", self.key_bytes, self.key_bytes >= 0, "0 or more")
        _require("the bytes of a value", self.value_bytes, self.value_bytes >= 0, "0 or more")
        _require("the skew", self.skew, 0 <= self.skew <= 5, "a Zipf exponent from 0 to 5")
        ratio = self.compression
        _require("the compression", ratio, 0 < ratio <= 1, "a stored share above 0, at most 1")
        size = self.state_bytes
        _require("the state's size", size, size is None or size > 0, "more than 0 bytes")

    @property
    def row_bytes(self) -> int:
        """A row: key group, state id, key and value."""
        return ROW_PREFIX_BYTES + self.key_bytes + self.value_bytes

    @property
    def raw_change_bytes(self) -> int:
        """A change in a block, before compression."""
        return self.row_bytes + CHANGE_OVERHEAD_BYTES

    @property
    def change_bytes(self) -> float:
        """A change in the log, as stored."""
        return self.raw_change_bytes * self.compression

    @property
    def table_bytes(self) -> float:
        """All live rows as the table stores them."""
        return self.keys * self.row_bytes if self.state_bytes is None else self.state_bytes

    @property
    def table_row_bytes(self) -> float:
        """A row as the table stores it."""
        return self.table_bytes / self.keys

    def distinct(self, seconds: float) -> float:
        """Expected number of rows that are changed at least once within some seconds."""
        return expected_distinct(self.keys, self.skew, self.writes_per_s * seconds)


def _require(what: str, value: object, holds: bool, expected: str) -> None:
    if not holds:
        raise ConfigError(what, expected=expected, found=str(value), action="correct it")
