"""What is remembered of a completed checkpoint: where its time went and how large it is.

Invariant: the phases follow one another and their sum is the duration, so a slow checkpoint shows
by itself what it waited for.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

import msgspec

from tidelog.checkpoint.manifest import BarrierFacts, Checkpoint, Savepoint, is_canonical
from tidelog.checkpoint.sizes import CheckpointContents, CheckpointSizes, barriers_of
from tidelog.ids import CheckpointId, Generation, SeqNo, Slot
from tidelog.metrics import gauge

_RECENT: Final = 4096
_DESCRIBED: Final = 512
"""Checkpoints of which more than the duration is remembered."""


@dataclass(frozen=True, slots=True)
class CheckpointPhases:
    """Where the time of a checkpoint went; seconds."""

    start_delay_s: float
    """From the trigger to the first barrier at the subtask that the barriers passed last."""
    alignment_s: float
    """From that barrier to the subtask's snapshot."""
    durable_s: float = gauge(
        "checkpoint_durable_seconds",
        "Time from the last snapshot of the last checkpoint until every subtask's part was "
        "durable: flushes and uploads.",
        watch="Long: the store is slow, or the log comes faster than it is uploaded.",
        default=0.0,
    )
    manifest_s: float = gauge(
        "checkpoint_manifest_seconds",
        "Time from when every subtask's part of the last checkpoint was durable until its "
        "manifest was stored, with no newer start above it.",
        watch="A few requests to the store, one after the other: its latency.",
        default=0.0,
    )


class NewTable(msgspec.Struct, frozen=True):
    """An upload of a subtask's table that no earlier checkpoint names."""

    operator: str
    subtask: int
    table_bytes: int
    upto: SeqNo


class CompletedCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint that this run completed."""

    checkpoint: Slot
    """The number of the checkpoint."""
    attempt: CheckpointId
    generation: Generation
    created_ms: int
    """As its manifest has it."""
    seconds: float
    phases: CheckpointPhases
    manifest_bytes: int
    sizes: CheckpointSizes
    unaligned: bool
    """A barrier overtook records."""
    savepoint: str | None
    """Name of the savepoint that it is."""
    canonical: bool
    """Whether the checkpoint is a canonical savepoint, whose segments hold all rows."""
    new_tables: tuple[NewTable, ...]


class CheckpointMetrics(msgspec.Struct):
    """Figures of the checkpoints since the start; seconds and bytes."""

    completed: int = 0
    failed: int = 0
    last_contents: CheckpointContents | None = None
    last_failure: str | None = None
    next_since: float | None = None
    """When the wait for the next completed checkpoint began, on the monotonic clock."""
    recent: deque[CompletedCheckpoint] = msgspec.field(
        default_factory=lambda: deque(maxlen=_DESCRIBED)
    )
    """The last few hundred checkpoints, oldest first."""
    durations_s: deque[float] = msgspec.field(default_factory=lambda: deque(maxlen=_RECENT))
    """Durations of the last few thousand checkpoints, in seconds, oldest first."""

    @property
    def last(self) -> CompletedCheckpoint | None:
        return self.recent[-1] if self.recent else None

    def complete(
        self, now: float, checkpoint: CompletedCheckpoint, contents: CheckpointContents
    ) -> None:
        self.completed += 1
        self.next_since = now
        self.durations_s.append(checkpoint.seconds)
        self.last_contents = contents
        self.recent.append(checkpoint)


def completed(
    entry: Checkpoint,
    previous: Checkpoint | None,
    seconds: tuple[float, float],
    manifest_bytes: int,
    sizes: CheckpointSizes,
) -> CompletedCheckpoint:
    """What to remember; `seconds` are those from the trigger until every part was durable, and
    until the manifest was stored. `previous` is the checkpoint before, if there was one.
    """
    durable_s, whole_s = seconds
    facts = barriers_of(entry)
    return CompletedCheckpoint(
        checkpoint=entry.slot,
        attempt=entry.checkpoint_id,
        generation=entry.author.generation,
        created_ms=entry.created_ms,
        seconds=whole_s,
        phases=_phases(facts, durable_s, whole_s),
        manifest_bytes=manifest_bytes,
        sizes=sizes,
        unaligned=any(fact.unaligned for fact in facts),
        savepoint=entry.name if isinstance(entry, Savepoint) else None,
        canonical=is_canonical(entry),
        new_tables=_new_tables(entry, previous),
    )


def _new_tables(entry: Checkpoint, previous: Checkpoint | None) -> tuple[NewTable, ...]:
    descriptors = {ref.descriptor for ref in previous.materializations()} if previous else set()
    return tuple(
        NewTable(operator.id, state.index, ref.table_bytes, ref.upto)
        for operator, state in entry.subtasks()
        if (ref := state.materialization) is not None and ref.descriptor not in descriptors
    )


def _phases(facts: list[BarrierFacts], durable_s: float, whole_s: float) -> CheckpointPhases:
    last = max(facts, key=lambda fact: fact.start_delay_ms + fact.alignment_ms, default=None)
    # Whole milliseconds are rounded: no phase may end after the next one has.
    start_delay_s = min(last.start_delay_ms / 1000, durable_s) if last is not None else 0.0
    alignment_s = min(last.alignment_ms / 1000, durable_s - start_delay_s) if last else 0.0
    return CheckpointPhases(
        start_delay_s,
        alignment_s,
        durable_s=durable_s - start_delay_s - alignment_s,
        manifest_s=whole_s - durable_s,
    )
