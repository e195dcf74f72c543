"""What a store holds: its slots, the descriptors they name, and the sizes of all data objects.

Invariants: nothing is written; what cannot be read is kept as the error it raised, never
skipped; slots are read before data objects are listed, so what a manifest names was written
before the listing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from tidelog.checkpoint.bounded import Progress, gather_bounded, no_progress
from tidelog.checkpoint.invariants import Need, direct_needs, table_needs
from tidelog.checkpoint.manifest import (
    Checkpoint,
    Descriptor,
    Entry,
    Start,
    decode_descriptor,
    decode_slot,
)
from tidelog.errors import (
    CorruptObjectError,
    FormatVersionError,
    ObjectNotFoundError,
    RestoreError,
    TidelogError,
)
from tidelog.ids import Generation, Slot
from tidelog.storage import paths
from tidelog.storage.port import ObjectStore

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Slots:
    """The slot log as it was read."""

    entries: Mapping[Slot, Entry]
    unreadable: Mapping[Slot, TidelogError]
    sizes: Mapping[Slot, int]
    """Bytes of every slot, readable or not."""

    @property
    def checkpoints(self) -> dict[Slot, Checkpoint]:
        """The readable checkpoints, oldest first."""
        entries = sorted(self.entries.items())
        return {slot: entry for slot, entry in entries if isinstance(entry, Checkpoint)}

    @property
    def generation(self) -> Generation | None:
        """The newest generation; None when no start could be read."""
        starts = [e.author.generation for e in self.entries.values() if isinstance(e, Start)]
        return max(starts, default=None)


@dataclass(frozen=True, slots=True)
class Inventory:
    """Slots, descriptors and stored data objects."""

    slots: Slots
    descriptors: Mapping[str, Descriptor]
    unreadable: Mapping[str, TidelogError]
    """Named descriptors that are missing or damaged."""
    sizes: Mapping[str, int]
    """Bytes of every stored data object."""

    def needs(self, checkpoint: Checkpoint) -> list[Need]:
        """Every object a checkpoint needs, as far as its descriptors can be read."""
        needs = direct_needs(checkpoint)
        tables = {
            need.name: need
            for direct in needs
            if direct.name in self.descriptors
            for need in table_needs(self.descriptors[direct.name])
        }
        return [*needs, *tables.values()]


async def list_slots(store: ObjectStore) -> dict[Slot, int]:
    """All slots in ascending order and their sizes in bytes."""
    infos = [info async for info in store.list(paths.CHECKPOINTS)]
    named = ((paths.slot_of(info.name), info.size) for info in infos)
    return {slot: size for slot, size in named if slot is not None}


async def read_slots(store: ObjectStore) -> Slots:
    """Read all slots.

    Raises ObjectNotFoundError when there is none, and what the store raises.
    """
    sizes = await list_slots(store)
    if not sizes:
        raise _no_slots(store.url)

    async def read(slot: Slot) -> Entry | TidelogError | None:
        try:
            return await _read_slot(store, slot)
        except ObjectNotFoundError:
            return None  # A running job dropped it since the listing.
        except (CorruptObjectError, FormatVersionError) as error:
            return error

    entries: dict[Slot, Entry]
    entries, unreadable = _sorted_out(await gather_bounded(sizes, read))
    known = {slot: size for slot, size in sizes.items() if slot in entries or slot in unreadable}
    return Slots(entries, unreadable, known)


async def find_checkpoint(store: ObjectStore, slot: Slot | None) -> Checkpoint:
    """The checkpoint in a slot, or the newest one.

    Raises ObjectNotFoundError, RestoreError when the slot is a start, CorruptObjectError and
    FormatVersionError; a newest slot that cannot be read is never passed over.
    """
    slots = await list_slots(store)
    if not slots:
        raise _no_slots(store.url)
    if slot is not None and slot not in slots:
        raise ObjectNotFoundError(
            f"slot {slot} of store {store.url}",
            expected=f"one of {', '.join(map(str, slots))}",
            found="no such slot",
            action="choose a checkpoint that `tidelog checkpoints list URL` shows",
        )
    for candidate in reversed(slots) if slot is None else [slot]:
        entry = await _read_slot(store, candidate)
        if isinstance(entry, Checkpoint):
            return entry
    raise RestoreError(
        f"store {store.url}" if slot is None else f"slot {slot} of store {store.url}",
        expected="a checkpoint",
        found="the start of a generation",
        action="choose a checkpoint that `tidelog checkpoints list URL` shows",
    )


async def _read_slot(store: ObjectStore, slot: Slot) -> Entry:
    return decode_slot(await store.get(paths.checkpoint(slot)), slot)


def _no_slots(url: str) -> ObjectNotFoundError:
    return ObjectNotFoundError(
        f"store {url}",
        expected="the slots of a job",
        found="none",
        action="check the URL; a job writes its first slot when it starts",
    )


async def read_inventory(store: ObjectStore, progress: Progress = no_progress) -> Inventory:
    """Read all slots and descriptors, and list all data objects; raises like `read_slots`."""
    slots = await read_slots(store)
    names = {
        layer.materialization.descriptor
        for checkpoint in slots.checkpoints.values()
        for _, layer in checkpoint.layers()
        if layer.materialization is not None
    }

    async def read(name: str) -> Descriptor | TidelogError:
        try:
            return decode_descriptor(await store.get(name), name)
        except (ObjectNotFoundError, CorruptObjectError, FormatVersionError) as error:
            return error

    descriptors, unreadable = _sorted_out(await gather_bounded(sorted(names), read, progress))
    sizes = {}
    for prefix in (paths.SEGMENTS, paths.TABLES, paths.MATERIALIZATIONS):
        async for info in store.list(prefix):
            if paths.generation_of(info.name) is not None:
                sizes[info.name] = info.size
    return Inventory(slots, descriptors, unreadable, sizes)


def _sorted_out(
    read: Mapping[T, R | TidelogError | None],
) -> tuple[dict[T, R], dict[T, TidelogError]]:
    errors = {key: found for key, found in read.items() if isinstance(found, TidelogError)}
    values = {
        key: found
        for key, found in read.items()
        if found is not None and not isinstance(found, TidelogError)
    }
    return values, errors
