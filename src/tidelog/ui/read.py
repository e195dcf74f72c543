"""Reads a store for the page, and reads it again at little cost.

Invariants: nothing is written; a slot or a descriptor is read once, however often the page asks;
what cannot be read is kept as its error and tried again each time. Objects are listed after the
slots that name them were read, so what is found missing then is missing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidelog.catalog.audit import inventory_findings
from tidelog.catalog.inventory import Inventory, Slots, data_sizes, no_slots
from tidelog.checkpoint.finding import UNREADABLE, Finding, without_changes
from tidelog.checkpoint.manifest import Checkpoint, Descriptor, Entry, decode_descriptor
from tidelog.checkpoint.retention import counted
from tidelog.checkpoint.slots import list_slots, read_slot
from tidelog.concurrency import gather_bounded
from tidelog.effects import Clock
from tidelog.errors import ObjectNotFoundError, TidelogError
from tidelog.ids import Slot
from tidelog.storage.port import ObjectStore


@dataclass(frozen=True, slots=True)
class StoreView:
    """A store as it was read."""

    url: str
    inventory: Inventory
    """Slots and descriptors as of `read_ms`, sizes of the data objects as of `objects_ms`."""
    read_ms: int
    objects_ms: int
    """When all objects were listed."""
    findings: tuple[Finding, ...]
    """What was wrong when all objects were listed, without what was dropped since."""

    @property
    def slots(self) -> Slots:
        """The slots that count."""
        return self.inventory.slots


@dataclass(slots=True)
class StoreReader:
    """Reads one store again and again."""

    store: ObjectStore
    clock: Clock
    _entries: dict[Slot, tuple[int, Entry]] = field(default_factory=dict)
    """Slots that were read, with their sizes: one of another size was written since."""
    _descriptors: dict[str, Descriptor] = field(default_factory=dict)
    _sizes: Mapping[str, int] = field(default_factory=dict)
    _findings: tuple[Finding, ...] = ()
    _objects_ms: int | None = None

    async def read(self, *, objects: bool) -> StoreView:
        """What the store holds; all its objects are listed again only if asked for.

        Asks for one list of the slots, and for each slot and each descriptor that is new. Raises
        ObjectNotFoundError for a store without slots, and what the store raises.
        """
        slots = await self._slots()
        inventory = await self._described(slots)
        if objects or self._objects_ms is None:
            self._sizes = await data_sizes(self.store)
            inventory = replace(inventory, sizes=self._sizes)
            found = inventory_findings(inventory).all()
            present = await list_slots(self.store) if found else slots.sizes
            self._findings = tuple(without_changes(found, slots.sizes, present))
            self._objects_ms = self.clock.now_ms()
        return StoreView(
            self.store.url,
            inventory,
            self.clock.now_ms(),
            self._objects_ms or 0,
            tuple(without_changes(self._findings, slots.sizes, slots.sizes)),
        )

    async def _slots(self) -> Slots:
        sizes = await list_slots(self.store)
        if not sizes:
            raise await no_slots(self.store)
        known = self._entries
        self._entries = {s: known[s] for s, n in sizes.items() if s in known and known[s][0] == n}
        unreadable: dict[Slot, TidelogError] = {}

        async def read(slot: Slot) -> None:
            try:
                self._entries[slot] = (sizes[slot], await read_slot(self.store, slot))
            except ObjectNotFoundError:
                del sizes[slot]  # A running job dropped it since the listing.
            except UNREADABLE as error:
                unreadable[slot] = error

        await gather_bounded([slot for slot in sizes if slot not in self._entries], read)
        entries = {slot: entry for slot, (_, entry) in sorted(self._entries.items())}
        count = set(counted(sizes, entries[max(entries)])) if entries else set(sizes)
        return Slots(
            {slot: entry for slot, entry in entries.items() if slot in count},
            {slot: error for slot, error in unreadable.items() if slot in count},
            {slot: size for slot, size in sizes.items() if slot in count},
        )

    async def _described(self, slots: Slots) -> Inventory:
        names = {
            layer.materialization.descriptor
            for checkpoint in slots.checkpoints.values()
            for _, layer in checkpoint.layers()
            if layer.materialization is not None
        }
        known, unreadable = self._descriptors, dict[str, TidelogError]()
        self._descriptors = {name: known[name] for name in names & known.keys()}

        async def read(name: str) -> None:
            try:
                self._descriptors[name] = decode_descriptor(await self.store.get(name), name)
            except UNREADABLE as error:
                unreadable[name] = error

        await gather_bounded(sorted(names - known.keys()), read)
        return Inventory(slots, dict(self._descriptors), unreadable, self._sizes)


def newest_checkpoint(slots: Slots) -> Checkpoint | None:
    """The newest checkpoint that can be read."""
    found = slots.checkpoints
    return found[max(found)] if found else None
