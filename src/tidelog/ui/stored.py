"""What a store holds, as the page shows it: pure functions of what was read.

Invariant: what is damaged has its place like all else, with what is wrong and what to do.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from tidelog.checkpoint.finding import Finding
from tidelog.checkpoint.manifest import (
    Checkpoint,
    OperatorState,
    Savepoint,
    SubtaskState,
    is_canonical,
)
from tidelog.checkpoint.sizes import SharedFiles, checkpoint_sizes
from tidelog.errors import TidelogError
from tidelog.ids import Slot, SubtaskId
from tidelog.state.event_time import MAX_WATERMARK
from tidelog.storage import object_names
from tidelog.ui.document import (
    CheckpointPoint,
    OperatorPart,
    Problem,
    SlotPart,
    StatePart,
    SubtaskPart,
)
from tidelog.ui.history import SeenMaterializations
from tidelog.ui.read import StoreView

DETAILED: Final = 8
"""Newest checkpoints whose operators and subtasks are told; of older ones the totals are."""


def stored_points(view: StoreView) -> list[CheckpointPoint]:
    """The checkpoints that are stored, on the charts."""
    checkpoints = list(view.slots.checkpoints.values())
    known = view.inventory.descriptors

    def shared(name: str) -> Mapping[str, int]:
        return known[name].shared_bytes if name in known else {}

    points: list[CheckpointPoint] = []
    previous: Checkpoint | None = None
    next_slot: Slot | None = None
    for checkpoint in checkpoints:
        follows = checkpoint.slot == next_slot
        points.append(_point(view, checkpoint, previous if follows else None, shared))
        if not is_canonical(checkpoint):
            previous = checkpoint
        elif not follows:
            previous = None
        next_slot = Slot(checkpoint.slot + 1)
    return points


def _point(
    view: StoreView, checkpoint: Checkpoint, previous: Checkpoint | None, shared: SharedFiles
) -> CheckpointPoint:
    """`previous` is the checkpoint before, where that is stored as well."""
    sizes = checkpoint_sizes(checkpoint, previous, shared)
    facts = [s.barrier for _, s in checkpoint.subtasks() if s.barrier is not None]
    canonical, follows = is_canonical(checkpoint), previous is not None
    return CheckpointPoint(
        slot=checkpoint.slot,
        checkpoint_id=checkpoint.checkpoint_id,
        generation=checkpoint.author.generation,
        at_ms=checkpoint.created_ms,
        stored=True,
        savepoint=checkpoint.name if isinstance(checkpoint, Savepoint) else None,
        canonical=canonical,
        unaligned=any(fact.unaligned for fact in facts),
        start_delay_ms=max((fact.start_delay_ms for fact in facts), default=None),
        alignment_ms=max((fact.alignment_ms for fact in facts), default=None),
        manifest_bytes=view.slots.sizes[checkpoint.slot],
        log_bytes=sizes.log_full_bytes,
        table_bytes=sizes.materialized_full_bytes,
        new_log_bytes=sizes.log_incremental_bytes if follows else None,
        new_table_bytes=sizes.materialized_incremental_bytes if follows else None,
    )


def slot_parts(view: StoreView, seen: SeenMaterializations) -> Iterator[SlotPart]:
    """All slots that count, newest first."""
    slots = view.slots
    detailed = sorted(slots.checkpoints)[-DETAILED:]
    for slot in sorted(slots.sizes, reverse=True):
        entry, size = slots.entries.get(slot), slots.sizes[slot]
        if isinstance(entry, Checkpoint):
            yield _checkpoint(view, entry, seen if slot in detailed else None)
        elif entry is not None:
            yield SlotPart(
                slot=slot,
                kind="start",
                manifest_bytes=size,
                generation=entry.author.generation,
                created_ms=entry.created_ms,
                job=entry.job,
            )
        else:
            error = slots.unreadable.get(slot)
            text = "it could not be read" if error is None else str(error)
            yield SlotPart(
                slot=slot, kind="unreadable", manifest_bytes=size, restorable=False, problem=text
            )


def _checkpoint(
    view: StoreView, checkpoint: Checkpoint, seen: SeenMaterializations | None
) -> SlotPart:
    sizes = checkpoint_sizes(checkpoint, None, lambda _: {})
    wrong = [finding for finding in view.findings if checkpoint.slot in finding.unusable]
    broken = unreadable_descriptors(view, checkpoint)
    savepoint = checkpoint if isinstance(checkpoint, Savepoint) else None
    return SlotPart(
        slot=checkpoint.slot,
        kind="checkpoint" if savepoint is None else "savepoint",
        manifest_bytes=view.slots.sizes[checkpoint.slot],
        generation=checkpoint.author.generation,
        checkpoint_id=checkpoint.checkpoint_id,
        created_ms=checkpoint.created_ms,
        job=checkpoint.job,
        name=savepoint.name if savepoint is not None else None,
        savepoint_format=savepoint.savepoint_format if savepoint is not None else None,
        final=checkpoint.final,
        restorable=not (wrong or broken),
        log_bytes=sizes.log_full_bytes,
        table_bytes=sizes.materialized_full_bytes,
        operators=None
        if seen is None
        else tuple(_operator(operator, seen) for operator in checkpoint.operators),
        problem=str(wrong[0]) if wrong else next(iter(broken), None),
    )


def unreadable_descriptors(view: StoreView, checkpoint: Checkpoint) -> list[str]:
    """What is wrong with the descriptors that a checkpoint names."""
    names = {
        layer.materialization.descriptor
        for _, layer in checkpoint.layers()
        if layer.materialization is not None
    }
    wrong = view.inventory.unreadable
    return [str(wrong[name]) for name in sorted(names & wrong.keys())]


def _operator(operator: OperatorState, seen: SeenMaterializations) -> OperatorPart:
    return OperatorPart(
        operator.id,
        operator.key_groups,
        tuple(StatePart(s.name, s.kind, "; ".join(s.schema), s.ttl_ms) for s in operator.states),
        tuple(
            _subtask(SubtaskId(operator.id, each.index), each, seen) for each in operator.subtasks
        ),
    )


def _subtask(who: SubtaskId, state: SubtaskState, seen: SeenMaterializations) -> SubtaskPart:
    ref, facts, in_flight = state.materialization, state.barrier, state.in_flight
    first = seen.first(who, ref) if ref is not None else None
    tables = [layer.materialization for layer in state.layers]
    return SubtaskPart(
        index=state.index,
        first_key_group=state.first_key_group,
        last_key_group=state.last_key_group,
        changes=state.seqno,
        upto=state.upto,
        replay_changes=sum(layer.seqno - layer.upto for layer in state.layers),
        table_bytes=sum(table.table_bytes for table in tables if table is not None),
        log_bytes=sum(part.length for layer in state.layers for part in layer.log),
        inline_bytes=sum(len(block) for layer in state.layers for block in layer.inline),
        in_flight_bytes=in_flight.bytes if in_flight is not None else 0,
        descriptor=ref.descriptor if ref is not None else None,
        materialized_ms=first.event.at_ms if first is not None else None,
        materialized_before=first is None or first.before,
        watermark_ms=None if state.watermark == MAX_WATERMARK else state.watermark,
        end_of_time=state.watermark == MAX_WATERMARK,
        finished=state.finished,
        unaligned=facts.unaligned if facts is not None else None,
        start_delay_ms=facts.start_delay_ms if facts is not None else None,
        alignment_ms=facts.alignment_ms if facts is not None else None,
        inherited=len(state.inherited),
    )


def problems(view: StoreView) -> list[Problem]:
    """What is wrong with the store: what a listing of all objects showed, and what is new since."""
    found = {finding.where: _problem(view, finding) for finding in view.findings}
    unreadable: dict[str, tuple[TidelogError, tuple[int, ...]]] = {
        object_names.checkpoint(s): (e, (s,)) for s, e in view.slots.unreadable.items()
    }
    for name, error in view.inventory.unreadable.items():
        users = [c.slot for c in view.slots.checkpoints.values() if name in _descriptors(c)]
        unreadable[name] = (error, tuple(users))
    for where, (error, slots) in unreadable.items():
        if where not in found:
            found[where] = Problem(
                where,
                error.expected or "a readable object",
                error.found or str(error),
                error.action,
                tuple(slots),
            )
    return list(found.values())


def _descriptors(checkpoint: Checkpoint) -> set[str]:
    refs = [layer.materialization for _, layer in checkpoint.layers()]
    return {ref.descriptor for ref in refs if ref is not None}


def _problem(view: StoreView, finding: Finding) -> Problem:
    usable = set(view.slots.checkpoints).difference(finding.unusable)
    if finding.newer_format:
        action = "use the tidelog release that wrote it, or a newer one"
    elif not finding.unusable:
        action = "find out what else writes or deletes objects under this URL"
    elif usable:
        action = f"bring it back from a backup, or restore slot {max(usable)}"
    else:
        action = "bring it back from a backup; no other checkpoint can be restored"
    return Problem(finding.where, finding.expected, finding.found, action, finding.unusable)
