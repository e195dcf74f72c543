"""What the slots, the descriptors and the list of objects alone tell: nothing of it is read again.

Invariant: a pure function of the inventory; every checkpoint that a problem costs is named in it.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise

from tidelog.checkpoint.findings import checkpoint_findings
from tidelog.checkpoint.invariants import Violation, slot_violations
from tidelog.checkpoint.inventory import Inventory
from tidelog.checkpoint.manifest import Checkpoint, is_canonical
from tidelog.ids import SeqNo, Slot
from tidelog.storage import paths
from tidelog.verify.problems import Check, Problem, Problems, problem_of


def structural_problems(inventory: Inventory) -> Problems:
    """Everything that breaks an invariant of `checkpoint.invariants`, and the order of slots."""
    problems = Problems()
    problems.add(_slots(inventory))
    for slot, checkpoint in inventory.slots.checkpoints.items():
        problems.add(_checkpoint(inventory, slot, checkpoint))
    problems.add(_order(inventory.slots.checkpoints))
    return problems


def _slots(inventory: Inventory) -> Iterator[Problem]:
    slots = inventory.slots
    starts = known_starts(inventory)
    for slot, error in slots.unreadable.items():
        name = paths.checkpoint(slot)
        yield problem_of(error, [name], unusable=() if slot in starts else (slot,))
    for violation in slot_violations(slots.entries, slots.unreadable, inventory.sizes):
        # It may as well be the fault of another slot, and costs nothing.
        yield _problem(violation, ())


def known_starts(inventory: Inventory) -> set[Slot]:
    """Slots that are generations of something: an unreadable one of these held a start."""
    authors = (entry.author.generation for entry in inventory.slots.entries.values())
    writers = (paths.generation_of(name) for name in inventory.sizes)
    return {Slot(g) for g in (0, *authors, *writers) if g is not None}


def _checkpoint(inventory: Inventory, slot: Slot, checkpoint: Checkpoint) -> Iterator[Problem]:
    for finding in checkpoint_findings(inventory, checkpoint):
        violation, error = finding.violation, finding.error
        labels: list[str | None] = [partition_label(*owner) for owner in finding.owners]
        for label in labels or [None]:
            if error is None:
                yield _problem(violation, (slot,), label)
            else:
                yield problem_of(error, [violation.where], partition=label, unusable=(slot,))


def partition_label(operator: str, subtask: int) -> str:
    """How reports name a partition."""
    return f"{operator}-{subtask}"


def _order(checkpoints: Mapping[Slot, Checkpoint]) -> Iterator[Problem]:
    """A manifest that was put back to an older one has fewer changes than the slot before it."""
    # The rows of a canonical savepoint count as changes of nothing.
    counted = [(slot, each) for slot, each in checkpoints.items() if not is_canonical(each)]
    for (before, older), (after, newer) in pairwise(counted):
        if older.author != newer.author:
            continue  # A new start may go on from any checkpoint.
        least = _changes(older)
        for (operator, index), found in _changes(newer).items():
            wanted = least.get((operator, index), SeqNo(0))
            if found < wanted:
                yield Problem(
                    Check.ORDER,
                    f"{paths.checkpoint(after)}: operator {operator}, subtask {index}",
                    f"{wanted} changes or more, as slot {before} has",
                    f"{found}",
                    (partition_label(operator, index),),
                    doubtful=(after,),
                )


def _changes(checkpoint: Checkpoint) -> dict[tuple[str, int], SeqNo]:
    """The number of changes of every partition."""
    return {(owner.id, subtask.index): subtask.seqno for owner, subtask in checkpoint.subtasks()}


def _problem(
    violation: Violation, unusable: tuple[int, ...], partition: str | None = None
) -> Problem:
    return Problem(
        check=violation.invariant,
        where=violation.where,
        expected=violation.expected,
        found=violation.found,
        partitions=() if partition is None else (partition,),
        unusable=unusable,
    )
