"""What a job stores, sends and asks for: flows of objects, and requests; and what an estimate says
of one way to make state durable.

Invariants: rates are means over a steady run of the whole job; every object that is written is
deleted once, so the mean of what is stored is rate x size x life (Little's law). Strategies answer
the same questions, so they can stand side by side; what a strategy does not have is None.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

DAY_S: Final = 86_400.0
MONTH_S: Final = 730 * 3600.0
"""A month of 730 hours, a twelfth of a year."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Objects of one kind: how many are written, how large they are, how long they live."""

    kind: str
    per_s: float
    bytes: float
    life_s: float

    @property
    def stored(self) -> float:
        return self.per_s * self.life_s

    @property
    def stored_bytes(self) -> float:
        return self.stored * self.bytes

    @property
    def bytes_per_s(self) -> float:
        return self.per_s * self.bytes


@dataclass(frozen=True, slots=True)
class Reads:
    """Requests that write nothing, a second, and the bytes they bring."""

    gets: float = 0.0
    """GET and HEAD."""
    lists: float = 0.0
    bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Usage:
    """Everything a bill counts."""

    flows: tuple[Flow, ...]
    reads: Reads

    @property
    def puts_per_s(self) -> float:
        """PUT requests: objects written, and as many are deleted."""
        return sum(flow.per_s for flow in self.flows)

    @property
    def uploaded_per_s(self) -> float:
        """Bytes of all objects uploaded in a second."""
        return sum(flow.bytes_per_s for flow in self.flows)

    @property
    def stored_bytes(self) -> float:
        return sum(flow.stored_bytes for flow in self.flows)

    @property
    def stored_objects(self) -> float:
        return sum(flow.stored for flow in self.flows)


class Strategy(StrEnum):
    """The ways to make state durable that can be estimated."""

    CHANGELOG = "changelog"
    """tidelog with its changelog on."""
    INCREMENTAL = "incremental"
    """tidelog with its changelog off: RocksDB's new files at every checkpoint."""


@dataclass(frozen=True, slots=True)
class LogEstimate:
    """The log of the whole job."""

    combine: float
    """Updates per change that is logged."""
    changes_per_s: float
    bytes_per_s: float
    peak_bytes: float
    """Log stored at most."""
    rule_of_thumb_bytes: float
    """`formulas.log_peak_bytes`: without retention and without the time uploads take."""
    replay_changes: float
    """Changes that a restore replays, at most."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """One strategy; times in seconds."""

    strategy: Strategy
    usage: Usage
    cycle_s: float
    """Seconds between two checkpoints: longer than asked for when one takes longer."""
    checkpoint_s: float
    late_s: float
    """How late output is at most: written after a barrier, it waits for the next checkpoint."""
    restore_s: float
    """Seconds until all tables are whole when the log is longest, without the start of the process;
    with `restore.begin` when-whole records are handled then."""
    first_record_s: float
    """Seconds to the first record with `restore.begin` at-once."""
    materialize_s: float | None = None
    """Seconds between two materializations of a subtask."""
    trigger: str | None = None
    """What starts most materializations."""
    log: LogEstimate | None = None
    warnings: tuple[str, ...] = ()
