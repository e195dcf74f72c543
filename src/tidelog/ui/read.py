"""Reads a store for the page, and reads it again at little cost.

Invariants: nothing is written; a slot that counts, or a descriptor, is read once, however often
the page asks; what cannot be read is kept as its error and tried again each time. Objects are
listed after the slots that name them were read, so what is found missing then is missing. Nothing
that was read of a store counts once its directory was emptied and a job has begun in it anew.
"""

from dataclasses import dataclass, replace

from tidelog.catalog.audit import inventory_findings
from tidelog.catalog.inventory import Inventory, Slots, data_sizes, described, read_slots
from tidelog.checkpoint.finding import Finding, without_changes
from tidelog.effects import Clock
from tidelog.storage.port import ObjectStore


@dataclass(frozen=True, slots=True)
class StoreView:
    url: str
    inventory: Inventory
    """Slots and descriptors as of `read_ms`, sizes of the data objects as of `objects_ms`."""
    read_ms: int
    objects_ms: int
    """When all objects were listed."""
    findings: tuple[Finding, ...]
    """What was wrong when all objects were listed, without what was dropped since."""
    anew: bool
    """Whether the store was emptied, and a job has begun in it, since it was read before."""

    @property
    def slots(self) -> Slots:
        return self.inventory.slots


@dataclass(slots=True)
class StoreReader:
    """Reads one store again and again."""

    store: ObjectStore
    clock: Clock
    _last: StoreView | None = None

    async def read(self, *, objects: bool) -> StoreView:
        """What the store holds; all its objects are listed again only if asked for.

        Asks for one list of the slots, and for each slot and each descriptor that is new. Raises
        ObjectNotFoundError for a store without slots, and what the store raises.
        """
        last = self._last
        slots = await read_slots(self.store, known=last.slots if last is not None else None)
        anew = last is not None and _begun_anew(last.slots, slots)
        if anew:
            last, slots = None, await read_slots(self.store)
        known = last.inventory.descriptors if last is not None else {}
        inventory = await described(self.store, slots, known=known)
        if objects or last is None:
            inventory = replace(inventory, sizes=await data_sizes(self.store))
            found, objects_ms = inventory_findings(inventory).all(), self.clock.now_ms()
            present = (await read_slots(self.store, known=slots)).sizes if found else slots.sizes
        else:
            inventory = replace(inventory, sizes=last.inventory.sizes)
            found, objects_ms = last.findings, last.objects_ms
            present = slots.sizes
        findings = tuple(without_changes(found, slots.sizes, present))
        now_ms = self.clock.now_ms()
        self._last = StoreView(self.store.url, inventory, now_ms, objects_ms, findings, anew)
        return self._last


def _begun_anew(before: Slots, now: Slots) -> bool:
    """Whether a store was emptied between two reads: slots and generations only go up, and one
    attempt has started each generation.
    """
    attempts = {each.author.generation: each.author.attempt for each in before.entries.values()}
    return (
        max(now.sizes) < max(before.sizes)
        or (now.generation or 0) < (before.generation or 0)
        or any(
            attempts.get(each.author.generation, each.author.attempt) != each.author.attempt
            for each in now.entries.values()
        )
    )
