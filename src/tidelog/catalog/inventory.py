"""What a store holds: its slots, the descriptors they name, and the sizes of all data objects.

Invariants: nothing is written; what cannot be read is kept as the error it raised, never
skipped; slots are read before data objects are listed, so what a manifest names was written
before the listing.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, TypeVar

from tidelog.catalog.application import refuse_application
from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.descriptor import Descriptor, decode_descriptor
from tidelog.checkpoint.invariants import Need, direct_needs, table_needs
from tidelog.checkpoint.manifest import Checkpoint, Entry
from tidelog.checkpoint.retention import counted
from tidelog.checkpoint.slots import list_slots, named_checkpoints, no_such_checkpoint, read_slot
from tidelog.concurrency import Progress, gather_bounded, no_progress
from tidelog.errors import (
    CorruptObjectError,
    FormatVersionError,
    ObjectNotFoundError,
    RestoreError,
    TidelogError,
)
from tidelog.ids import Generation, Slot, SubtaskId
from tidelog.storage import object_names
from tidelog.storage.port import ObjectStore

T = TypeVar("T")
R = TypeVar("R")

_TRIES: Final = 20
"""A job may drop the newest checkpoint while it is read: so many listings are tried."""


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

    def all_checkpoints(self) -> list[Checkpoint]:
        """The checkpoints, oldest first; raises the error of a slot that cannot be read."""
        for error in self.unreadable.values():
            raise error
        return list(self.checkpoints.values())

    @property
    def newest(self) -> Checkpoint | None:
        """The newest checkpoint that can be read."""
        return next(reversed(self.checkpoints.values()), None)

    @property
    def generation(self) -> Generation | None:
        """The newest generation; None when no slot could be read."""
        return max((entry.author.generation for entry in self.entries.values()), default=None)


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
        tables: dict[str, Need] = {}
        for need in needs:
            if need.name in self.descriptors:
                for file in table_needs(self.descriptors[need.name]):
                    tables[file.name] = file
        return [*needs, *tables.values()]

    def needed_names(self, checkpoint: Checkpoint) -> set[str]:
        return {need.name for need in self.needs(checkpoint)}


async def read_slots(
    store: ObjectStore, *, every: bool = False, earlier: Slots | None = None
) -> Slots:
    """Read the slots that count, by `retention.counted`, or with `every` all that are stored.

    Of those in `earlier`, only the ones whose size is another now are read again. Raises
    ObjectNotFoundError when there is none, RestoreError when a job drops the newest one again and
    again, and what the store raises.
    """
    for _ in range(_TRIES):
        slots = await _read_slots(store, every=every, earlier=earlier)
        if slots is not None:
            return slots
    raise _dropped_each_time(store)


async def _read_slots(store: ObjectStore, *, every: bool, earlier: Slots | None) -> Slots | None:
    """As `read_slots`; None: the newest is gone, so what newer ones need is not known."""
    sizes = await _some_slots(store)

    async def read(slot: Slot) -> Entry | TidelogError | None:
        if earlier is not None and slot in earlier.entries and earlier.sizes[slot] == sizes[slot]:
            return earlier.entries[slot]
        try:
            return await read_slot(store, slot)
        except ObjectNotFoundError:
            return None  # A running job dropped it since the listing.
        except (CorruptObjectError, FormatVersionError) as error:
            return error

    entries: dict[Slot, Entry]
    entries, unreadable = _sorted_out(await gather_bounded(sizes, read))
    if max(sizes) not in entries.keys() | unreadable.keys():
        return None
    if entries and not every:
        for slot in sizes.keys() - counted(sizes, entries[max(entries)]):
            entries.pop(slot, None)
            unreadable.pop(slot, None)
    for slot in sizes.keys() - entries.keys() - unreadable.keys():
        del sizes[slot]
    return Slots(entries, unreadable, sizes)


async def find_checkpoint(store: ObjectStore, slot: Slot | None) -> Checkpoint:
    """The checkpoint in a slot, or the newest one.

    Raises ObjectNotFoundError for a store without any, CheckpointNotFoundError for a slot that is
    none, RestoreError when a job drops the newest one again and again, CorruptObjectError and
    FormatVersionError; a newest slot that cannot be read is never passed over.
    """
    if slot is not None:
        return await _checkpoint_in(store, slot)
    for _ in range(_TRIES):
        slots = await _some_slots(store)
        with suppress(ObjectNotFoundError):  # a running job dropped it since the listing
            for candidate in reversed(slots):
                entry = await read_slot(store, candidate)
                if isinstance(entry, Checkpoint):
                    return entry
            raise RestoreError(
                f"store {store.url}",
                expected="a checkpoint",
                found="a job that has begun, and has not completed one yet",
                action="wait for its first one (every `checkpoint.interval` while it runs), or "
                "start it again if it has ended",
            )
    raise _dropped_each_time(store)


async def _checkpoint_in(store: ObjectStore, slot: Slot) -> Checkpoint:
    if slot in await _some_slots(store):
        entry = await read_slot(store, slot)
        if isinstance(entry, Checkpoint):
            return entry
    existing = named_checkpoints((await read_slots(store)).entries.values())
    raise no_such_checkpoint(f"checkpoint {slot} of store {store.url}", existing)


async def _some_slots(store: ObjectStore) -> dict[Slot, int]:
    """The slots with their sizes in bytes.

    Raises ObjectNotFoundError where there is none, ConfigError for the store of an application.
    """
    slots = await list_slots(store)
    if slots:
        return slots
    await refuse_application(store)
    raise ObjectNotFoundError(
        f"store {store.url}",
        expected="the checkpoints of a job",
        found="none",
        action="check the URL; a job writes there when it starts; for the checkpoint of a "
        "Spark query there is `tidelog spark checkpoints`",
    )


def _dropped_each_time(store: ObjectStore) -> RestoreError:
    return RestoreError(
        f"store {store.url}",
        expected="its newest checkpoint to stay while it is read",
        found="a running job that drops it each time",
        action="try again, or let the job retain more checkpoints",
    )


async def read_inventory(
    store: ObjectStore, progress: Progress = no_progress, *, every: bool = False
) -> Inventory:
    """Slots, descriptors and a list of all data objects; `every` and errors as in `read_slots`."""
    inventory = await described(store, await read_slots(store, every=every), progress)
    return replace(inventory, sizes=await data_sizes(store))


async def described(
    store: ObjectStore,
    slots: Slots,
    progress: Progress = no_progress,
    decoded: Mapping[str, Descriptor] = MappingProxyType({}),
) -> Inventory:
    """Read the descriptors that slots name and `decoded` lacks; no data objects are listed."""
    names: set[str] = set()
    for checkpoint in slots.checkpoints.values():
        names.update(ref.descriptor for ref in checkpoint.materializations())

    async def read(name: str) -> Descriptor | TidelogError:
        if name in decoded:
            return decoded[name]
        try:
            return decode_descriptor(await store.get(name), name)
        except (ObjectNotFoundError, CorruptObjectError, FormatVersionError) as error:
            return error

    descriptors, unreadable = _sorted_out(await gather_bounded(sorted(names), read, progress))
    return Inventory(slots, descriptors, unreadable, {})


async def data_sizes(store: ObjectStore) -> dict[str, int]:
    """Bytes of every stored segment, table file and descriptor, by name."""
    sizes: dict[str, int] = {}
    for prefix in object_names.DATA:
        async for info in store.list(prefix):
            if object_names.generation_of(info.name) is not None:
                sizes[info.name] = info.size
    return sizes


def _sorted_out(
    read: Mapping[T, R | TidelogError | None],
) -> tuple[dict[T, R], dict[T, TidelogError]]:
    values: dict[T, R] = {}
    errors: dict[T, TidelogError] = {}
    for key, result in read.items():
        if isinstance(result, TidelogError):
            errors[key] = result
        elif result is not None:
            values[key] = result
    return values, errors


@dataclass(frozen=True, slots=True)
class RangeUse:
    """A range that checkpoints name as log or in-flight data of one subtask."""

    part: LogRange
    owner: SubtaskId
    """The subtask that wrote it."""
    slots: tuple[Slot, ...]
    """The checkpoints, in the order in which they were given."""

    @property
    def bytes(self) -> range:
        return range(self.part.offset, self.part.offset + self.part.length)


def range_uses(checkpoints: Iterable[Checkpoint]) -> Mapping[str, tuple[RangeUse, ...]]:
    """The ranges that checkpoints need, by segment."""
    uses: dict[tuple[LogRange, SubtaskId], dict[Slot, None]] = defaultdict(dict)
    for checkpoint in checkpoints:
        for operator, state in checkpoint.stored_subtasks():
            for layer in state.layers:
                for part in layer.log:
                    uses[part, SubtaskId(operator.id, layer.subtask)][checkpoint.slot] = None
            for part in state.in_flight.log if state.in_flight is not None else ():
                uses[part, SubtaskId(operator.id, state.index)][checkpoint.slot] = None
    by_segment: dict[str, list[RangeUse]] = defaultdict(list)
    for (part, owner), slots in uses.items():
        by_segment[part.segment].append(RangeUse(part, owner, tuple(slots)))
    return {segment: tuple(segment_uses) for segment, segment_uses in by_segment.items()}
