"""The facts that a report is made of, as they stand in manifests, blocks and changes.

Invariants: facts are plain numbers without an opinion; times are milliseconds since 1970 by the
clock of the job, sizes bytes; tallies are sums, so they add up in any order.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.ids import SubtaskId

LogKey = tuple[int, SubtaskId]
"""The log of one subtask in one checkpoint: its slot, and whose log it is."""


@dataclass(frozen=True, slots=True)
class Point:
    """One subtask in one retained checkpoint."""

    slot: int
    created_ms: int
    seqno: int
    """Changes logged when the barrier passed."""
    upto: int
    """Changes below are in the materialization; 0 without one."""
    table_bytes: int
    """Bytes of the files of the materialization; 0 without one."""
    log_bytes: int
    """Bytes of log that the manifest names or holds, which a restore reads."""
    updates: int = 0
    """Updates that were combined into the changes since updates are counted; 0: they are not."""


@dataclass(frozen=True, slots=True)
class MeasuredSnapshot:
    """One retained checkpoint."""

    slot: int
    generation: int
    created_ms: int
    manifest_bytes: int
    final: bool
    """The job ended with it: what it does at the end of its data is in this one alone."""
    segments: frozenset[str]
    points: Mapping[SubtaskId, Point]


@dataclass(frozen=True, slots=True)
class Tally:
    """Some blocks, or changes; `raw_bytes` is their payload before compression, without headers."""

    blocks: int = 0
    changes: int = 0
    raw_bytes: int = 0
    stored_bytes: int = 0
    deletes: int = 0
    """Changes that delete a row, where they are counted."""

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.blocks + other.blocks,
            self.changes + other.changes,
            self.raw_bytes + other.raw_bytes,
            self.stored_bytes + other.stored_bytes,
            self.deletes + other.deletes,
        )


@dataclass(frozen=True, slots=True)
class BlockFacts:
    """The blocks that retained checkpoints name."""

    by_log: Mapping[LogKey, Tally] = field(default_factory=dict)
    """The blocks of each subtask in each checkpoint."""
    distinct: Mapping[SubtaskId, Tally] = field(default_factory=dict)
    """The blocks of each subtask, each counted once, however many checkpoints name it."""
