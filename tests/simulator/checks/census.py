"""The census: what a store holds after a clean start and end, against what it should hold.

Invariant: a pure function of the objects.
"""

from collections.abc import Mapping

from tidelog.checkpoint.invariants import direct_needs, table_needs
from tidelog.checkpoint.manifest import Checkpoint, Savepoint, decode_descriptor, decode_entry
from tidelog.storage import object_names


def census(objects: Mapping[str, bytes], retain: int) -> str | None:
    """What is too much or missing; None when slots and what they name are all there is."""
    needed: set[str] = set()
    checkpoints = 0
    for name in sorted(objects):
        if object_names.slot_of(name) is None:
            continue
        needed.add(name)
        entry = decode_entry(objects[name], name)
        if isinstance(entry, Checkpoint):
            checkpoints += not isinstance(entry, Savepoint)
            needed |= _named(entry, objects)
    left = sorted(objects.keys() - needed)
    lost = sorted(needed - objects.keys())
    if not left and not lost and checkpoints <= retain:
        return None
    return (
        f"left over {left[:5]} ({len(left)}), missing {lost[:5]} ({len(lost)}), {checkpoints} "
        f"checkpoints of {retain} to retain"
    )


def _named(entry: Checkpoint, objects: Mapping[str, bytes]) -> set[str]:
    """Every object a checkpoint needs."""
    names = {need.name for need in direct_needs(entry)}
    for name in sorted(names):
        if name.startswith(object_names.MATERIALIZATIONS) and name in objects:
            descriptor = decode_descriptor(objects[name], name)
            names |= {need.name for need in table_needs(descriptor)}
    return names
