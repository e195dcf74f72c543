"""The index of a checkpoint, written again where it is missing or damaged.

Invariants: what stands and can be read stays as it is; an entry is written only if the segments'
own footers or another part of the index have it; a committed id is never replaced by another.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tidelog.spark.checkpoint.checkpoint import COMMITS, INDEX, Checkpoint, Entries
from tidelog.spark.checkpoint.commits import Commit, with_index
from tidelog.spark.checkpoint.export import replace
from tidelog.spark.checkpoint.liveness import Assessment
from tidelog.spark.format.index import IndexDocument, IndexEntry, write_index
from tidelog.spark.format.names import BATCHES_PER_ROLL_UP, roll_up_name
from tidelog.storage.port import ObjectStore


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """What is missing or damaged, and what belongs there."""

    lines: dict[int, IndexDocument] = field(default_factory=dict)
    """Index lines to write, by batch."""
    roll_ups: dict[int, IndexDocument] = field(default_factory=dict)
    """Roll-ups to write, by first batch."""
    useless: tuple[str, ...] = ()
    """Damaged roll-ups of which nothing is needed any more: to delete."""


def plan_rebuild(checkpoint: Checkpoint, assessment: Assessment, known: Entries) -> RebuildPlan:
    """Decide what to write; raises nothing.

    `known` are the entries of the index and of all footers, `assessment` what they amount to.
    """
    return RebuildPlan(
        lines=_lines(checkpoint, known),
        roll_ups=(roll_ups := _roll_ups(checkpoint, assessment)),
        useless=_useless(checkpoint, roll_ups),
    )


def _lines(checkpoint: Checkpoint, known: Entries) -> dict[int, IndexDocument]:
    by_batch: dict[int, list[IndexEntry]] = defaultdict(list)
    for entry in known.values():
        if all(piece.segment in checkpoint.segments for piece in entry.pieces):
            by_batch[entry.name.version - 1].append(entry)
    lines = {}
    for batch, commit in checkpoint.commits.items():
        if commit.index is None:
            named = _named(commit, by_batch[batch])
            if named or commit.damage is not None:
                lines[batch] = _document(checkpoint, batch, batch, named)
    return lines


def _roll_ups(checkpoint: Checkpoint, assessment: Assessment) -> dict[int, IndexDocument]:
    live_by_window: dict[int, list[IndexEntry]] = defaultdict(list)
    for entry in assessment.live:
        live_by_window[window_of(entry.name.version - 1)].append(entry)
    roll_ups = {}
    for first, entries in sorted(live_by_window.items()):
        last = first + BATCHES_PER_ROLL_UP - 1
        complete = checkpoint.newest is not None and last <= checkpoint.newest
        if complete and first not in checkpoint.roll_ups:
            roll_ups[first] = _document(checkpoint, first, last, entries)
    return roll_ups


def _useless(checkpoint: Checkpoint, roll_ups: Iterable[int]) -> tuple[str, ...]:
    written = {INDEX + roll_up_name(first) for first in roll_ups}
    damaged = {name for name in checkpoint.damaged if name.startswith(INDEX)}
    return tuple(sorted(damaged - written))


async def write_index_again(store: ObjectStore, checkpoint: Checkpoint, plan: RebuildPlan) -> None:
    """Write what a plan says: roll-ups first, as the plug-in does; raises what the store raises."""
    for first, document in plan.roll_ups.items():
        name = INDEX + roll_up_name(first)
        await replace(store, checkpoint, name, write_index(document).encode())
    for batch, document in plan.lines.items():
        commit = checkpoint.commits[batch]
        await replace(store, checkpoint, f"{COMMITS}{batch}", with_index(commit, document))
    for name in plan.useless:
        await store.delete(name)


def window_of(batch: int) -> int:
    """First batch of the window that a batch is in."""
    return batch - batch % BATCHES_PER_ROLL_UP


def _named(commit: Commit, entries: Sequence[IndexEntry]) -> list[IndexEntry]:
    return [e for e in entries if (e.name.operator, e.name.partition, e.name.id) in commit.named]


def _document(
    checkpoint: Checkpoint, first: int, last: int, entries: Iterable[IndexEntry]
) -> IndexDocument:
    kept = tuple(entries)
    names = {piece.segment for entry in kept for piece in entry.pieces}
    lengths = {name: checkpoint.segments[name] for name in names}
    return IndexDocument(first=first, last=last, segments=lengths, entries=kept)
