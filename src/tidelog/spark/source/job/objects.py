"""View `objects` of a store: everything stored, and which checkpoints need it.

Invariants: an orphan is what `tidelog sweep` would delete, by the same rule; when a reference is
unknown, because a slot or descriptor cannot be read, that is an error.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tidelog.catalog.inventory import Inventory, read_inventory
from tidelog.checkpoint.retention import checkpoint_objects, sweepable
from tidelog.checkpoint.slots import list_slots
from tidelog.errors import ObjectNotFoundError
from tidelog.ids import Slot
from tidelog.spark.source.frames import Row
from tidelog.spark.source.parts import Listing, Part, Request
from tidelog.storage import object_names
from tidelog.storage.port import ObjectInfo, ObjectStore

_KINDS: Final = {
    object_names.SEGMENTS: "segment",
    object_names.TABLES: "table",
    object_names.MATERIALIZATIONS: "materialization",
}


async def plan(store: ObjectStore, request: Request) -> Sequence[Part]:
    """One part with a row per object, by name."""
    return [Listing(_rows)]


async def _rows(store: ObjectStore) -> list[Row]:
    # Slots before the listing: what they name was written before it.
    inventory = await read_inventory(store)
    if any(isinstance(error, ObjectNotFoundError) for error in inventory.unreadable.values()):
        # A running job may have dropped the slots that name it since: then these do not count.
        inventory = _with_slots(inventory, await list_slots(store))
    for error in (*inventory.slots.unreadable.values(), *inventory.unreadable.values()):
        raise error
    infos = [info async for info in store.list("")]
    users = references(inventory)
    orphans = orphaned(inventory, users, infos)
    return [
        {
            "name": info.name,
            "kind": kind_of(info.name),
            "bytes": info.size,
            "generation": object_names.generation_of(info.name),
            "referenced_by": users.get(info.name, []),
            "orphan": orphans.get(info.name),
        }
        for info in infos
    ]


def _with_slots(inventory: Inventory, present: Collection[Slot]) -> Inventory:
    """The inventory as far as these slots make it."""
    slots = inventory.slots
    entries = {slot: entry for slot, entry in slots.entries.items() if slot in present}
    left = replace(slots, entries=entries)
    named = {name for each in left.checkpoints.values() for name in checkpoint_objects(each)}
    unreadable = {name: e for name, e in inventory.unreadable.items() if name in named}
    return replace(inventory, slots=left, unreadable=unreadable)


def kind_of(name: str) -> str:
    """What an object is by its name."""
    if object_names.slot_of(name) is not None:
        return "slot"
    if object_names.generation_of(name) is None:
        return "other"
    return _KINDS[name.partition("/")[0] + "/"]


def references(inventory: Inventory) -> dict[str, list[int]]:
    """The slots whose checkpoints need an object, ascending."""
    users: dict[str, list[int]] = defaultdict(list)
    for slot, checkpoint in inventory.slots.checkpoints.items():
        for need in inventory.needs(checkpoint):
            users[need.name].append(slot)
    return users


def orphaned(
    inventory: Inventory, users: Mapping[str, Sequence[int]], infos: Sequence[ObjectInfo]
) -> dict[str, bool]:
    """Whether an object is garbage for certain; those are left out of which that is not known:
    the newest generation may still name what nothing names yet.
    """
    kept = {info.name: False for info in infos if object_names.slot_of(info.name) is not None}
    kept |= dict.fromkeys(users, False)
    generation = inventory.slots.generation
    if generation is None:
        return kept
    garbage, _ = sweepable((info.name for info in infos), users.keys(), generation)
    return kept | dict.fromkeys(garbage, True)
