"""View `objects` of a store: everything stored, and which checkpoints need it.

Invariants: an orphan is what `tidelog sweep` would delete, by the same rule; when a reference is
unknown, because a slot or descriptor cannot be read, that is an error.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tidelog.checkpoint.inventory import Inventory, read_inventory
from tidelog.checkpoint.retention import sweepable
from tidelog.spark.source import frames
from tidelog.spark.source.parts import Part, Request, Task
from tidelog.storage import paths
from tidelog.storage.port import ObjectInfo, ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa

_KINDS: Final = {
    paths.SEGMENTS: "segment",
    paths.TABLES: "table",
    paths.MATERIALIZATIONS: "materialization",
}


async def plan(store: ObjectStore, request: Request) -> Sequence[Part]:
    """One part: a listing is one sequence of requests, whoever makes it."""
    return [ObjectsPart()]


@dataclass(frozen=True, slots=True)
class ObjectsPart:
    """All objects of a store."""

    size: int = 0

    def read(self, task: Task) -> Iterator["pa.RecordBatch"]:
        """A row per object, by name."""
        rows = task.session.run(_rows(task.session.store))
        for at in range(0, len(rows), frames.ROWS):
            yield frames.from_rows(task.request.columns, rows[at : at + frames.ROWS])


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
