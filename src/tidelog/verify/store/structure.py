"""What the slots, the descriptors and the list of objects alone tell: nothing of it is read again.

Invariant: a pure function of the inventory; every checkpoint that a problem costs is named in it.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise

from tidelog.checkpoint.invariants import (
    Invariant,
    Violation,
    descriptor_violations,
    manifest_violations,
    object_violations,
    slot_violations,
)
from tidelog.checkpoint.inventory import Inventory
from tidelog.checkpoint.manifest import Checkpoint, InheritedState
from tidelog.checkpoint.retention import descriptor_objects, subtask_objects
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
        named = paths.slot_of(violation.where)
        misnamed = violation.invariant is Invariant.SLOT_NAME and named in slots.checkpoints
        # The others may as well be the fault of another slot, and cost nothing.
        yield _problem(violation, (named,) if misnamed and named is not None else ())


def known_starts(inventory: Inventory) -> set[Slot]:
    """Slots that are generations of something: an unreadable one of these held a start."""
    authors = (entry.author.generation for entry in inventory.slots.entries.values())
    writers = (paths.generation_of(name) for name in inventory.sizes)
    return {Slot(g) for g in (0, *authors, *writers) if g is not None}


def _checkpoint(inventory: Inventory, slot: Slot, checkpoint: Checkpoint) -> Iterator[Problem]:
    for violation in manifest_violations(checkpoint):
        yield _problem(violation, (slot,))
    for operator, subtask in checkpoint.subtasks():
        for layer in subtask.layers:
            label = partition_label(operator.id, subtask.index)
            yield from _layer(inventory, slot, operator.id, label, layer)
    # What is missing, or has another size, is among these.
    partitions = users_of(inventory, checkpoint)
    for violation in object_violations(inventory.needs(checkpoint), inventory.sizes):
        for label in sorted(partitions[violation.where]):
            yield _problem(violation, (slot,), label)


def _layer(
    inventory: Inventory, slot: Slot, operator: str, label: str, layer: InheritedState
) -> Iterator[Problem]:
    """Whether a materialization is what the manifest says of it."""
    ref = layer.materialization
    if ref is None:
        return
    descriptor = inventory.descriptors.get(ref.descriptor)
    error = inventory.unreadable.get(ref.descriptor)
    if descriptor is not None:
        found = descriptor_violations(operator, layer, ref, descriptor)
        yield from (_problem(violation, (slot,), label) for violation in found)
    elif error is not None and inventory.sizes.get(ref.descriptor) == ref.size:
        yield problem_of(error, [ref.descriptor], partition=label, unusable=(slot,))


def partition_label(operator: str, subtask: int) -> str:
    """How reports name a partition."""
    return f"{operator}-{subtask}"


def users_of(inventory: Inventory, checkpoint: Checkpoint) -> Mapping[str, set[str]]:
    """The partitions of a checkpoint that need an object, by the object's name."""
    users: dict[str, set[str]] = {}
    for operator, subtask in checkpoint.subtasks():
        names = subtask_objects(subtask)
        described = [inventory.descriptors.get(name) for name in names]
        for name in names.union(*(descriptor_objects(d) for d in described if d is not None)):
            users.setdefault(name, set()).add(partition_label(operator.id, subtask.index))
    return users


def _order(checkpoints: Mapping[Slot, Checkpoint]) -> Iterator[Problem]:
    """A manifest that was put back to an older one has fewer changes than the slot before it."""
    in_place = [(slot, entry) for slot, entry in checkpoints.items() if entry.slot == slot]
    for (before, older), (after, newer) in pairwise(in_place):
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
