"""What is wrong with one checkpoint of a store, as far as manifests, descriptors and sizes tell.

Invariant: a pure function of the inventory; each finding names the subtasks that it concerns, none
when it is about the manifest as a whole.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tidelog.catalog.inventory import Inventory
from tidelog.checkpoint.finding import Finding
from tidelog.checkpoint.invariants import (
    descriptor_violations,
    manifest_violations,
    object_violations,
    unreadable,
)
from tidelog.checkpoint.manifest import Checkpoint, InheritedState, MaterializationRef
from tidelog.checkpoint.retention import descriptor_objects, subtask_objects
from tidelog.ids import SubtaskId


def checkpoint_findings(inventory: Inventory, checkpoint: Checkpoint) -> Iterator[Finding]:
    """All findings about a checkpoint; each makes it unusable."""
    for finding in _findings(inventory, checkpoint):
        yield replace(finding, unusable=(checkpoint.slot,))


def _findings(inventory: Inventory, checkpoint: Checkpoint) -> Iterator[Finding]:
    yield from manifest_violations(checkpoint)
    for operator, subtask in checkpoint.subtasks():
        owner = SubtaskId(operator.id, subtask.index)
        for layer in subtask.layers:
            if layer.materialization is not None:
                for finding in _layer_findings(inventory, owner, layer, layer.materialization):
                    yield replace(finding, partitions=(str(owner),))
    owners = _owners(inventory, checkpoint)
    for finding in object_violations(inventory.needs(checkpoint), inventory.sizes):
        yield replace(finding, partitions=tuple(sorted(map(str, owners[finding.where]))))


def _layer_findings(
    inventory: Inventory, owner: SubtaskId, layer: InheritedState, ref: MaterializationRef
) -> Iterator[Finding]:
    descriptor = inventory.descriptors.get(ref.descriptor)
    error = inventory.unreadable.get(ref.descriptor)
    if descriptor is not None:
        yield from descriptor_violations(owner.operator, layer, ref, descriptor)
    # One that is missing, or has another size, is among the objects.
    elif error is not None and inventory.sizes.get(ref.descriptor) == ref.size:
        yield unreadable(ref.descriptor, error)


def _owners(inventory: Inventory, checkpoint: Checkpoint) -> Mapping[str, set[SubtaskId]]:
    """The subtasks of a checkpoint that need an object, by the object's name."""
    owners: dict[str, set[SubtaskId]] = defaultdict(set)
    for operator, subtask in checkpoint.subtasks():
        names = subtask_objects(subtask)
        described = [inventory.descriptors.get(name) for name in names]
        for name in names.union(*(descriptor_objects(d) for d in described if d is not None)):
            owners[name].add(SubtaskId(operator.id, subtask.index))
    return owners
