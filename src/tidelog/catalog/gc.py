"""What is deleted by hand: what crashes left and no checkpoint can ever name again, and savepoints.

Invariants: only data objects of generations older than the newest start are deleted; those are
fenced, so the set of what names them can only shrink; when one retained slot or descriptor
cannot be read, its references are unknown and nothing is deleted at all. Dropping a savepoint
deletes its slot alone, its objects go by the rules of retention; the newest checkpoint stays,
because sinks have committed it and the next start resumes from it.
"""

from dataclasses import dataclass

from tidelog.catalog.inventory import Inventory, read_inventory
from tidelog.catalog.locate import CheckpointName
from tidelog.checkpoint.manifest import Savepoint
from tidelog.checkpoint.retention import collectable
from tidelog.checkpoint.slots import named_checkpoints, no_such_checkpoint
from tidelog.concurrency import Progress, gather_bounded, no_progress
from tidelog.errors import ConfigError, RestoreError
from tidelog.ids import Generation, Slot
from tidelog.storage import object_names
from tidelog.storage.port import ObjectInfo, ObjectStore


@dataclass(frozen=True, slots=True)
class GarbagePlan:
    """What a garbage collection would delete."""

    generation: Generation
    """The newest generation; its objects belong to its job."""
    garbage: tuple[ObjectInfo, ...]
    undecided: tuple[ObjectInfo, ...]
    """Objects of the newest generation that nothing names: garbage, or about to be named."""


async def plan_gc(store: ObjectStore, progress: Progress = no_progress) -> GarbagePlan:
    """Decide what is garbage; deletes nothing.

    Raises RestoreError when a slot or descriptor cannot be read, ObjectNotFoundError when the
    store has no slots, and what the store raises.
    """
    inventory = await read_inventory(store, progress)
    broken = dict(inventory.unreadable)
    for slot, error in inventory.slots.unreadable.items():
        broken[object_names.checkpoint(slot)] = error
    for name, error in sorted(broken.items()):
        raise RestoreError(
            f"garbage collection: the references of object {name} are unknown",
            expected=error.expected,
            found=error.found,
            action="nothing was deleted; see what `tidelog inspect URL` says of it, bring it back "
            "from a backup; or, when the job has completed a newer checkpoint, delete the objects "
            "checkpoints/... of those that it makes unusable; then run `tidelog gc` again",
        )
    generation = inventory.slots.generation
    assert generation is not None, "every slot that can be read names its generation"
    checkpoints = inventory.slots.checkpoints.values()
    references = set[str]().union(*map(inventory.needed_names, checkpoints))
    garbage, undecided = collectable(inventory.sizes, references, generation)
    return GarbagePlan(generation, _infos(inventory, garbage), _infos(inventory, undecided))


async def delete_garbage(
    store: ObjectStore, plan: GarbagePlan, progress: Progress = no_progress
) -> None:
    """Delete a plan's garbage, or find it gone; raises what the store raises, a retry is safe."""
    await gather_bounded((info.name for info in plan.garbage), store.delete, progress)


def _infos(inventory: Inventory, names: list[str]) -> tuple[ObjectInfo, ...]:
    return tuple(ObjectInfo(name, inventory.sizes[name]) for name in names)


@dataclass(frozen=True, slots=True)
class DropPlan:
    """A savepoint and the objects that no other checkpoint names."""

    savepoint: Savepoint
    objects: tuple[ObjectInfo, ...]

    @property
    def freed_bytes(self) -> int:
        return sum(info.size for info in self.objects)


def plan_drop(inventory: Inventory, checkpoint: CheckpointName) -> DropPlan:
    """What dropping a savepoint would do.

    Raises ConfigError when there is no such one, and RestoreError when it has to stay.
    """
    checkpoints = inventory.slots.checkpoints
    newest = max(checkpoints, default=None)
    for slot, entry in reversed(checkpoints.items()):
        if checkpoint in (slot, None) or (
            isinstance(entry, Savepoint) and entry.name == checkpoint
        ):
            if not isinstance(entry, Savepoint):
                raise ConfigError(
                    f"checkpoint {slot}",
                    expected="a savepoint",
                    found="a checkpoint, which the job drops in time",
                    action="choose a savepoint that `tidelog checkpoints list URL` shows",
                )
            if slot == newest:
                raise RestoreError(
                    f"savepoint {entry.name!r}",
                    expected="a newer checkpoint, which the next start could resume from",
                    found=f"none newer than it, checkpoint {entry.slot}: without it output that is "
                    "committed would come again",
                    action="drop it when the job has completed another checkpoint; nothing was "
                    "deleted",
                )
            return DropPlan(entry, _own_objects(inventory, slot))
    for slot, error in inventory.slots.unreadable.items():
        if checkpoint == slot or isinstance(checkpoint, str):  # it may be the one of that name
            raise RestoreError(
                f"checkpoint {slot}",
                expected=f"a savepoint that can be read, with {error.expected}",
                found=error.found,
                action=f"bring object {object_names.checkpoint(slot)} back from a backup; or, "
                "when the job has completed a newer checkpoint, delete that object by hand",
            )
    savepoints = (entry for entry in checkpoints.values() if isinstance(entry, Savepoint))
    raise no_such_checkpoint(f"savepoint {checkpoint}", named_checkpoints(savepoints))


def _own_objects(inventory: Inventory, dropped: Slot) -> tuple[ObjectInfo, ...]:
    """The stored objects that no other checkpoint needs."""
    remaining = dict(inventory.slots.checkpoints)
    names = inventory.needed_names(remaining.pop(dropped)) & inventory.sizes.keys()
    names.difference_update(*map(inventory.needed_names, remaining.values()))
    return _infos(inventory, sorted(names))
