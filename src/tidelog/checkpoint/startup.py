"""What a starting job reads from its store: retained checkpoints, and objects of older generations.

Invariants: only objects of older generations are taken over; those are fenced, so nobody adds
references to them any more. As long as a slot cannot be read its references are unknown, and
nothing of older generations is taken over, so nothing of them is deleted. The same holds for a
descriptor.
"""

import logging
from collections.abc import Iterable, Mapping

import msgspec

from tidelog.checkpoint.descriptor import Descriptor, decode_descriptor
from tidelog.checkpoint.manifest import Checkpoint, Entry, Start
from tidelog.checkpoint.retention import counted
from tidelog.checkpoint.slots import SlotLog, TakeOver, named_checkpoints, no_such_checkpoint
from tidelog.concurrency import AT_ONCE, together
from tidelog.errors import (
    CorruptObjectError,
    FormatVersionError,
    ObjectNotFoundError,
    RestoreError,
    TidelogError,
)
from tidelog.events import Event
from tidelog.ids import CheckpointId, Generation, Slot
from tidelog.storage import object_names
from tidelog.storage.ledger import Ledger
from tidelog.storage.port import ObjectStore

logger = logging.getLogger(__name__)


class History(msgspec.Struct, frozen=True):
    """The checkpoints below our start, oldest first, and the slots that could not be read."""

    checkpoints: tuple[Checkpoint, ...]
    damaged: dict[Slot, TidelogError]
    complete: bool
    """Every slot and descriptor could be read: all references to older objects are known."""
    descriptors: Mapping[str, Descriptor] = {}
    """Descriptors of the materializations in the newest checkpoint, by object name; one that could
    not be read is missing.
    """

    @property
    def next_checkpoint_id(self) -> CheckpointId:
        """Higher than all before, also when resuming from an older checkpoint."""
        return CheckpointId(max((c.checkpoint_id for c in self.checkpoints), default=0) + 1)

    def resume_from(self, target: Slot | None) -> Checkpoint | None:
        """The checkpoint in slot `target`, or the newest; None for a store without any.

        Raises CheckpointNotFoundError when there is no such one, and the slot's own error when it,
        or without a target the newest, is damaged.
        """
        if target is None:
            newest = self.checkpoints[-1] if self.checkpoints else None
            for slot, error in self.damaged.items():
                if newest is None or slot > newest.slot:
                    raise error
            return newest
        if target in self.damaged:
            raise self.damaged[target]
        for checkpoint in self.checkpoints:
            if checkpoint.slot == target:
                return checkpoint
        raise no_such_checkpoint(f"checkpoint {target}", named_checkpoints(self.checkpoints))


async def resumable(slots: SlotLog, target: Slot | None) -> Checkpoint | None:
    """What a start would resume from, looked up before it fences anything: `target`, or the newest.

    Raises CheckpointNotFoundError, CorruptObjectError and FormatVersionError as `read_history` and
    `History.resume_from` would, and RestoreError when the job has moved to Spark.
    """
    stored_slots = await slots.slots()
    counting: list[Slot] | None = None
    entries: list[Entry] = []
    for slot in reversed(stored_slots):
        if counting is not None and slot not in counting:
            continue
        try:
            entry = await slots.read(slot)
        except ObjectNotFoundError:
            continue  # dropped by the job that runs
        except CorruptObjectError:
            if target in (None, slot):
                raise
            continue
        counting = counting or counted(stored_slots, entry)
        if isinstance(entry, Start) and entry.moved_to and target is None:
            raise moved_away(entry)
        if isinstance(entry, Checkpoint) and target in (None, slot):
            return entry
        entries.append(entry)
    if target is not None:
        raise no_such_checkpoint(f"checkpoint {target}", named_checkpoints(entries))
    return None


def moved_away(move: Start) -> RestoreError:
    """The error of what would go on beside the query that a job has become."""
    last = move.history[-1][1] if move.history else "NAME"
    return RestoreError(
        f"job {move.job!r}",
        expected="it in this store",
        found=f"that it moved to the Spark checkpoint {move.moved_to}, from checkpoint {last}",
        action="let the query go on; to bring the job back, stop the query and run `tidelog spark "
        f"savepoint {move.moved_to} --to URL@NAME` with the URL of this store; to go on from "
        f"before the move, without what the query has done, start with --from @{last}",
        retry_safe=False,
    )


async def read_history(
    store: ObjectStore, slots: SlotLog, takeover: TakeOver, ledger: Ledger
) -> History:
    """Read all retained checkpoints and fill the ledger with older generations' objects."""
    # Side by side: one after the other, a store's latency would be most of a small restart.
    entries = await together((_read(slots, slot) for slot in takeover.slots), AT_ONCE)
    checkpoints: list[Checkpoint] = []
    damaged: dict[Slot, TidelogError] = {}
    for slot, entry in zip(takeover.slots, entries, strict=True):
        if isinstance(entry, Checkpoint):
            checkpoints.append(entry)
        elif isinstance(entry, TidelogError):
            damaged[slot] = entry
    descriptors = _descriptors_of(checkpoints)
    older: list[str] = []
    described: dict[str, Descriptor] = {}
    listing = (
        _list_older(store, prefix, takeover.generation, older) for prefix in object_names.DATA
    )
    describing = (_describe(store, name, ledger, described) for name in sorted(descriptors))
    await together([*listing, *describing], AT_ONCE)
    complete = not damaged and described.keys() == descriptors
    if complete:
        ledger.inherit(older)
    newest = _descriptors_of(checkpoints[-1:])
    newest_descriptors = {name: described[name] for name in described if name in newest}
    return History(tuple(checkpoints), damaged, complete, newest_descriptors)


def _descriptors_of(checkpoints: Iterable[Checkpoint]) -> set[str]:
    descriptors: set[str] = set()
    for checkpoint in checkpoints:
        descriptors |= {ref.descriptor for ref in checkpoint.materializations()}
    return descriptors


async def _read(slots: SlotLog, slot: Slot) -> Entry | TidelogError:
    try:
        return await slots.read(slot)
    except (CorruptObjectError, FormatVersionError, ObjectNotFoundError) as error:
        Event.CHECKPOINT_UNREADABLE.log(logger, checkpoint=slot, error=error)
        return error


async def _list_older(
    store: ObjectStore, prefix: str, generation: Generation, older: list[str]
) -> None:
    """Add the objects of older generations: retention deletes those nothing refers to."""
    async for info in store.list(prefix):
        owner = object_names.generation_of(info.name)
        if owner is not None and owner < generation:
            older.append(info.name)


async def _describe(
    store: ObjectStore, name: str, ledger: Ledger, described: dict[str, Descriptor]
) -> None:
    """Add a descriptor, and tell the ledger its files; nothing when it cannot be read."""
    try:
        descriptor = decode_descriptor(await store.get(name), name)
    except (CorruptObjectError, FormatVersionError, ObjectNotFoundError) as error:
        Event.DESCRIPTOR_UNREADABLE.log(logger, object=name, error=error)
        # The restore that needs it says so; a job that resumes elsewhere goes on without.
        return
    ledger.describe(name, descriptor.shared_bytes)
    described[name] = descriptor
