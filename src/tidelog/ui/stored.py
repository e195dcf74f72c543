"""What a store holds, as the page shows it: pure functions of what was read.

Invariant: what is damaged has its place like all else, with what is wrong and what to do.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from tidelog.catalog.audit import next_step
from tidelog.catalog.summary import OperatorSummary, SlotSummary, checkpoint_summary, slot_summary
from tidelog.checkpoint.finding import Finding
from tidelog.checkpoint.invariants import unreadable
from tidelog.checkpoint.manifest import Checkpoint, Savepoint, is_canonical
from tidelog.checkpoint.sizes import checkpoint_sizes, contents_of
from tidelog.ids import Slot
from tidelog.storage import object_names
from tidelog.ui.read import StoreView

DETAILED: Final = 8
"""Newest checkpoints whose operators and subtasks are shown; of older ones the totals are."""


class SlotPart(SlotSummary, frozen=True, kw_only=True):
    """A slot of the store."""

    restorable: bool | None = None
    """As far as sizes say; null where nothing says so."""
    operators: tuple[OperatorSummary, ...] | None = None
    """Null for a slot that holds none, and for those of which only the totals are shown."""
    problem: str | None = None


def stored_points(view: StoreView) -> Iterator[dict[str, Any]]:
    """The checkpoints that are stored, with the fields of a `CompletedCheckpoint` that a store
    knows, and what they hold where a barrier says how it passed."""
    previous: Checkpoint | None = None
    next_slot: Slot | None = None
    for checkpoint in view.slots.checkpoints.values():
        follows = checkpoint.slot == next_slot
        yield _point(view, checkpoint, previous if follows else None)
        if not is_canonical(checkpoint):
            previous = checkpoint
        elif not follows:
            previous = None
        next_slot = Slot(checkpoint.slot + 1)


def _point(view: StoreView, checkpoint: Checkpoint, previous: Checkpoint | None) -> dict[str, Any]:
    """`previous` is the checkpoint before, where that is stored as well."""
    known = view.inventory.descriptors

    def shared(name: str) -> Mapping[str, int]:
        return known[name].shared_bytes if name in known else {}

    sizes = msgspec.to_builtins(checkpoint_sizes(checkpoint, previous, shared))
    if previous is None:
        sizes = {name: size for name, size in sizes.items() if "incremental" not in name}
    barriers = [s.barrier for _, s in checkpoint.subtasks() if s.barrier is not None]
    return {
        "slot": checkpoint.slot,
        "checkpoint_id": checkpoint.checkpoint_id,
        "generation": checkpoint.author.generation,
        "created_ms": checkpoint.created_ms,
        "manifest_bytes": view.slots.sizes[checkpoint.slot],
        "sizes": sizes,
        "unaligned": any(facts.unaligned for facts in barriers),
        "savepoint": checkpoint.name if isinstance(checkpoint, Savepoint) else None,
        "canonical": is_canonical(checkpoint),
        "contents": msgspec.to_builtins(contents_of(checkpoint)) if barriers else None,
    }


def slot_parts(view: StoreView) -> Iterator[SlotPart]:
    """All slots that count, newest first."""
    checkpoints = view.slots.checkpoints
    detailed = sorted(checkpoints)[-DETAILED:]
    for slot in sorted(view.slots.sizes, reverse=True):
        summary, problem = slot_summary(view.slots, slot), problem_of(view, slot)
        yield SlotPart(
            **msgspec.structs.asdict(summary),
            restorable=None if summary.kind == "start" else problem is None,
            operators=checkpoint_summary(checkpoints[slot]).operators if slot in detailed else None,
            problem=problem,
        )


def problem_of(view: StoreView, slot: Slot) -> str | None:
    """Why a slot cannot be restored; None when nothing speaks against it."""
    error = view.slots.unreadable.get(slot)
    if error is not None:
        return str(error)
    wrong = [str(finding) for finding in view.findings if slot in finding.unusable]
    checkpoint = view.slots.checkpoints.get(slot)
    named = descriptor_sizes(checkpoint) if checkpoint is not None else {}
    broken = view.inventory.unreadable
    wrong += (str(broken[name]) for name in sorted(named.keys() & broken.keys()))
    return wrong[0] if wrong else None


def problems(view: StoreView) -> list[Finding]:
    """What is wrong with the store: what a listing of all objects showed, and what is new since."""
    found = {finding.where: finding for finding in view.findings}
    for slot, error in view.slots.unreadable.items():
        name = object_names.checkpoint(slot)
        found.setdefault(name, replace(unreadable(name, error), unusable=(slot,)))
    for name, error in view.inventory.unreadable.items():
        users = [c.slot for c in view.slots.checkpoints.values() if name in descriptor_sizes(c)]
        found.setdefault(name, replace(unreadable(name, error), unusable=tuple(users)))
    for name, each in found.items():
        usable = view.slots.checkpoints.keys() - set(each.unusable)
        found[name] = replace(each, action=next_step(each, max(usable, default=None)))
    return list(found.values())


def descriptor_sizes(*checkpoints: Checkpoint) -> dict[str, int]:
    """Bytes of the descriptors that checkpoints name."""
    return {ref.descriptor: ref.size for each in checkpoints for ref in each.materializations()}
