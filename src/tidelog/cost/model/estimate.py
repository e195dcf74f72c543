"""What an estimate says of one way to make state durable.

Invariant: strategies answer the same questions, so they can stand side by side; what a strategy
does not have is None.
"""

from dataclasses import dataclass
from enum import StrEnum

from tidelog.cost.model.usage import Usage


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
    restore_s: float
    """Seconds of a restore when the log is longest, without the start of the process."""
    materialize_s: float | None = None
    """Seconds between two materializations of a subtask."""
    trigger: str | None = None
    """What starts most materializations."""
    log: LogEstimate | None = None
    warnings: tuple[str, ...] = ()
