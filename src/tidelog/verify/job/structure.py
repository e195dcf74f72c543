"""What the slots, the descriptors and the list of objects alone show; nothing more is read.

Invariant: a pure function of the inventory; every checkpoint that a finding costs is named in it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from tidelog.catalog.audit import checkpoint_findings
from tidelog.catalog.inventory import Inventory
from tidelog.checkpoint.finding import Finding, Findings
from tidelog.checkpoint.invariants import slot_violations, unreadable
from tidelog.checkpoint.manifest import Checkpoint, is_canonical
from tidelog.ids import SeqNo, Slot, SubtaskId
from tidelog.storage import object_names
from tidelog.verify.findings import Check


def structural_findings(inventory: Inventory) -> Findings:
    """Everything that breaks an invariant of `checkpoint.invariants`, and the order of slots."""
    findings = Findings()
    slots = inventory.slots
    starts = known_starts(inventory)
    for slot, error in slots.unreadable.items():
        costs = () if slot in starts else (slot,)
        findings.add([replace(unreadable(object_names.checkpoint(slot), error), unusable=costs)])
    # These may as well be the fault of another slot, and cost nothing.
    findings.add(slot_violations(slots.entries, slots.unreadable, inventory.sizes))
    for checkpoint in slots.checkpoints.values():
        findings.add(checkpoint_findings(inventory, checkpoint))
    findings.add(_order(slots.checkpoints))
    return findings


def known_starts(inventory: Inventory) -> set[Slot]:
    """Slots that are generations of something: an unreadable one of these held a start."""
    authors = (entry.author.generation for entry in inventory.slots.entries.values())
    writers = (object_names.generation_of(name) for name in inventory.sizes)
    return {Slot(g) for g in (0, *authors, *writers) if g is not None}


def _order(checkpoints: Mapping[Slot, Checkpoint]) -> Iterator[Finding]:
    """A manifest that was put back to an older one has fewer changes than the slot before it."""
    # The rows of a canonical savepoint count as changes of nothing.
    counted = [(slot, each) for slot, each in checkpoints.items() if not is_canonical(each)]
    for (before, older), (after, newer) in pairwise(counted):
        if older.author != newer.author:
            continue  # A new start may go on from any checkpoint.
        least = _changes(older)
        for subtask, found in _changes(newer).items():
            wanted = least.get(subtask, SeqNo(0))
            if found < wanted:
                yield Finding(
                    Check.ORDER,
                    f"{object_names.checkpoint(after)}: operator {subtask.operator}, "
                    f"subtask {subtask.subtask}",
                    f"{wanted} changes or more, as slot {before} has",
                    f"{found}",
                    (str(subtask),),
                    doubtful=(after,),
                )


def _changes(checkpoint: Checkpoint) -> dict[SubtaskId, SeqNo]:
    """The number of changes of every partition."""
    return {SubtaskId(o.id, state.index): state.seqno for o, state in checkpoint.subtasks()}
