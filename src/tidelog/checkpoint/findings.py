"""What is wrong with one checkpoint of a store, as far as manifests, descriptors and sizes tell.

Invariant: a pure function of the inventory; each finding names the subtasks that it concerns, none
when it is about the manifest as a whole.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tidelog.checkpoint.invariants import (
    Violation,
    descriptor_violations,
    manifest_violations,
    object_violations,
    readable_violation,
)
from tidelog.checkpoint.inventory import Inventory
from tidelog.checkpoint.manifest import Checkpoint, InheritedState, MaterializationRef
from tidelog.checkpoint.retention import descriptor_objects, subtask_objects
from tidelog.errors import TidelogError

Owner = tuple[str, int]
"""Operator and subtask."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken invariant; `error` is that of the read which found it, if one did."""

    violation: Violation
    owners: tuple[Owner, ...] = ()
    error: TidelogError | None = None


def checkpoint_findings(inventory: Inventory, checkpoint: Checkpoint) -> Iterator[Finding]:
    """All findings about a checkpoint."""
    for violation in manifest_violations(checkpoint):
        yield Finding(violation)
    yield from _descriptor_findings(inventory, checkpoint)
    owners = _owners(inventory, checkpoint)
    for violation in object_violations(inventory.needs(checkpoint), inventory.sizes):
        yield Finding(violation, tuple(sorted(owners[violation.where])))


def _descriptor_findings(inventory: Inventory, checkpoint: Checkpoint) -> Iterator[Finding]:
    for operator, subtask in checkpoint.subtasks():
        for layer in subtask.layers:
            if layer.materialization is not None:
                owner = operator.id, subtask.index
                yield from _layer_findings(inventory, owner, layer, layer.materialization)


def _layer_findings(
    inventory: Inventory, owner: Owner, layer: InheritedState, ref: MaterializationRef
) -> Iterator[Finding]:
    descriptor = inventory.descriptors.get(ref.descriptor)
    error = inventory.unreadable.get(ref.descriptor)
    if descriptor is not None:
        for violation in descriptor_violations(owner[0], layer, ref, descriptor):
            yield Finding(violation, (owner,))
    # One that is missing, or has another size, is among the objects.
    elif error is not None and inventory.sizes.get(ref.descriptor) == ref.size:
        yield Finding(readable_violation(ref.descriptor, error), (owner,), error)


def _owners(inventory: Inventory, checkpoint: Checkpoint) -> Mapping[str, set[Owner]]:
    """The subtasks of a checkpoint that need an object, by the object's name."""
    owners: dict[str, set[Owner]] = defaultdict(set)
    for operator, subtask in checkpoint.subtasks():
        names = subtask_objects(subtask)
        described = [inventory.descriptors.get(name) for name in names]
        for name in names.union(*(descriptor_objects(d) for d in described if d is not None)):
            owners[name].add((operator.id, subtask.index))
    return owners
