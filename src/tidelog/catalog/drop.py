"""Removing a savepoint by hand: what may be dropped, and what that frees.

Invariants: the newest checkpoint of a store stays, because sinks have committed it and the next
start resumes from it; only a slot is deleted here, its objects go by the rules of retention.
"""

from dataclasses import dataclass

from tidelog.catalog.inventory import Inventory
from tidelog.catalog.locate import CheckpointName
from tidelog.checkpoint.manifest import Savepoint
from tidelog.errors import ObjectNotFoundError, RestoreError
from tidelog.ids import Slot
from tidelog.storage.port import ObjectInfo


@dataclass(frozen=True, slots=True)
class DropPlan:
    """A savepoint and the objects that no other checkpoint names."""

    savepoint: Savepoint
    objects: tuple[ObjectInfo, ...]

    @property
    def freed_bytes(self) -> int:
        """Bytes of these objects."""
        return sum(info.size for info in self.objects)


def plan_drop(inventory: Inventory, place: CheckpointName) -> DropPlan:
    """What dropping a savepoint would do.

    Raises ObjectNotFoundError when there is none there, and RestoreError when it has to stay.
    """
    checkpoints = inventory.slots.checkpoints
    newest = max(checkpoints, default=None)
    for slot, entry in reversed(checkpoints.items()):
        if place in (slot, None) or (isinstance(entry, Savepoint) and entry.name == place):
            if not isinstance(entry, Savepoint):
                raise _no_savepoint(slot)
            if slot == newest:
                raise _newest(entry)
            return DropPlan(entry, _own_objects(inventory, slot))
    raise ObjectNotFoundError(
        f"savepoint {place}",
        expected="one of this store",
        found="none of that name or slot",
        action="choose one that `tidelog checkpoints list URL` shows",
    )


def _own_objects(inventory: Inventory, dropped: Slot) -> tuple[ObjectInfo, ...]:
    needed: dict[bool, set[str]] = {True: set(), False: set()}
    for slot, checkpoint in inventory.slots.checkpoints.items():
        needed[slot == dropped].update(need.name for need in inventory.needs(checkpoint))
    own = sorted(needed[True] - needed[False])
    return tuple(ObjectInfo(name, inventory.sizes[name]) for name in own if name in inventory.sizes)


def _no_savepoint(slot: Slot) -> RestoreError:
    return RestoreError(
        f"slot {slot}",
        expected="a savepoint",
        found="a checkpoint, which the job drops in time",
        action="choose a savepoint that `tidelog checkpoints list URL` shows",
    )


def _newest(entry: Savepoint) -> RestoreError:
    return RestoreError(
        f"savepoint {entry.name!r}",
        expected="a newer checkpoint, which the next start could resume from",
        found=f"none newer than its slot {entry.slot}: without it output that is committed would "
        "come again",
        action="drop it when the job has completed another checkpoint; nothing was deleted",
    )
