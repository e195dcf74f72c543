"""View `objects` of a store: everything stored, and which checkpoints need it.

Invariants: an orphan is what `tidelog sweep` would delete, by the same rule; when a reference is
unknown, because a slot or descriptor cannot be read, that is an error.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidelog.checkpoint.inventory import Inventory, read_inventory
from tidelog.checkpoint.retention import sweepable
from tidelog.spark.source.parts import Listing, Part, Request
from tidelog.storage import paths
from tidelog.storage.port import ObjectInfo, ObjectStore

_KINDS: Final = {
    paths.SEGMENTS: "segment",
    paths.TABLES: "table",
    paths.MATERIALIZATIONS: "materialization",
}


async def plan(store: ObjectStore, request: Request) -> Sequence[Part]:
    """One part with a row per object, by name."""
    return [Listing(_rows)]


async def _rows(store: ObjectStore) -> list[dict[str, Any]]:
    # Slots before the listing: what they name was written before it.
    inventory = await read_inventory(store)
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
            "generation": paths.generation_of(info.name),
            "referenced_by": users.get(info.name, []),
            "orphan": orphans.get(info.name),
        }
        for info in infos
    ]


def kind_of(name: str) -> str:
    """What an object is by its name."""
    if paths.slot_of(name) is not None:
        return "slot"
    if paths.generation_of(name) is None:
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
    kept = {info.name: False for info in infos if paths.slot_of(info.name) is not None}
    kept |= dict.fromkeys(users, False)
    generation = inventory.slots.generation
    if generation is None:
        return kept
    garbage, _ = sweepable((info.name for info in infos), users.keys(), generation)
    return kept | dict.fromkeys(garbage, True)
