"""What a restore of a stored checkpoint reads: the bytes, objects and changes that are stored."""

from collections import Counter
from collections.abc import Mapping

from tidelog.catalog.inventory import Inventory
from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.invariants import direct_needs
from tidelog.checkpoint.manifest import Checkpoint
from tidelog.checkpoint.sizes import replay_changes
from tidelog.cost.model.restoring import Fetch, Objects


def fetch_of(inventory: Inventory, checkpoint: Checkpoint) -> Fetch:
    """What a restore of a checkpoint reads; without the files of unreadable descriptors."""
    slots = inventory.slots
    ranges: set[LogRange] = set()
    changes = 0
    for _, state in checkpoint.subtasks():
        ranges.update(state.ranges)
        changes += replay_changes(state)
    bytes_by_segment: Counter[str] = Counter()
    for part in ranges:
        bytes_by_segment[part.segment] += part.length
    descriptors: dict[str, int] = {}
    for retained in slots.checkpoints.values():
        for ref in retained.materializations():
            descriptors[ref.descriptor] = ref.size
    files: dict[str, int] = {}
    for need in direct_needs(checkpoint):
        if need.name in inventory.descriptors:
            files |= inventory.descriptors[need.name].shared_bytes
    return Fetch(
        manifests=_objects({str(slot): slots.sizes[slot] for slot in slots.checkpoints}),
        described=_objects(descriptors),
        files=_objects(files),
        segments=_objects(bytes_by_segment),
        changes=changes,
    )


def _objects(sizes: Mapping[str, int]) -> Objects:
    return Objects(len(sizes), sum(sizes.values()))
