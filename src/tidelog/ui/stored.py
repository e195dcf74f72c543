"""What a store holds: read for the page, read again at little cost, and as the page shows it.

Invariants: nothing is written; a slot that counts, or a descriptor, is read once, however often
the page asks; what cannot be read is kept as its error and tried again each time. Objects are
listed after the slots that name them were read, so what is found missing then is missing. Nothing
that was read of a store counts once its directory was emptied and a job has begun in it anew. What
is damaged has its place like all else, with what is wrong and what to do.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from tidelog.catalog.audit import advised, inventory_findings, verdicts_on
from tidelog.catalog.inventory import Inventory, Slots, data_sizes, described, read_slots
from tidelog.catalog.summary import OperatorSummary, SlotSummary, checkpoint_summary, slot_summary
from tidelog.checkpoint.finding import Finding, without_changes
from tidelog.checkpoint.invariants import Invariant
from tidelog.checkpoint.manifest import Checkpoint, Savepoint, is_canonical
from tidelog.checkpoint.sizes import barriers_of, checkpoint_sizes, contents_of
from tidelog.effects import Clock
from tidelog.ids import Slot
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
    """What is wrong, as far as that is known: objects are those of the last list."""
    anew: bool
    """Whether the store was emptied, and a job has begun in it, since it was read before."""

    @property
    def slots(self) -> Slots:
        return self.inventory.slots


@dataclass(slots=True)
class StoreReader:
    store: ObjectStore
    clock: Clock
    _last: StoreView | None = None

    async def read(self, *, objects: bool) -> StoreView:
        """What the store holds; all its objects are listed again only if asked for.

        Asks for one list of the slots, and for each slot and each descriptor that is new. Raises
        ObjectNotFoundError for a store without slots, and what the store raises.
        """
        last = self._last
        slots = await read_slots(self.store, earlier=last.slots if last is not None else None)
        anew = last is not None and _begun_anew(last.slots, slots)
        if anew:
            last, slots = None, await read_slots(self.store)
        decoded = last.inventory.descriptors if last is not None else {}
        inventory = await described(self.store, slots, decoded=decoded)
        present = slots.sizes
        if objects or last is None:
            inventory = replace(inventory, sizes=await data_sizes(self.store))
            candidates, objects_ms = inventory_findings(inventory).all(), self.clock.now_ms()
            if candidates:  # a running job may have dropped some of them
                present = (await read_slots(self.store, earlier=slots)).sizes
        else:
            inventory = replace(inventory, sizes=last.inventory.sizes)
            candidates, objects_ms = _known_findings(inventory, last), last.objects_ms
        findings = tuple(without_changes(candidates, slots.sizes, present))
        now_ms = self.clock.now_ms()
        self._last = StoreView(self.store.url, inventory, now_ms, objects_ms, findings, anew)
        return self._last


def _known_findings(inventory: Inventory, last: StoreView) -> tuple[Finding, ...]:
    """What is wrong by what is known without another list: objects that were written since are
    taken to be there, and those that were missing are missing for newer checkpoints, too.
    """
    absent = {finding.where for finding in last.findings if finding.check == Invariant.OBJECTS}
    sizes: dict[str, int] = {}
    for checkpoint in inventory.slots.checkpoints.values():
        for need in inventory.needs(checkpoint):
            if need.name not in absent:
                sizes[need.name] = need.size
    sizes |= inventory.sizes
    return inventory_findings(replace(inventory, sizes=sizes)).all()


def _begun_anew(before: Slots, now: Slots) -> bool:
    """Whether a store was emptied between two reads: slots and generations only go up, and one
    attempt has started each generation.
    """
    attempts = {entry.author.generation: entry.author.attempt for entry in before.entries.values()}
    for entry in now.entries.values():
        author = entry.author
        if attempts.get(author.generation, author.attempt) != author.attempt:
            return True
    return max(now.sizes) < max(before.sizes) or (now.generation or 0) < (before.generation or 0)


DETAILED: Final = 8
"""Newest checkpoints whose operators and subtasks are shown; of older ones the totals are."""


class SlotPart(SlotSummary, frozen=True, kw_only=True):
    restorable: bool | None = None
    """As far as sizes say; null where nothing says so."""
    operators: tuple[OperatorSummary, ...] | None = None
    """Null for a slot that holds none, and for those of which only the totals are shown."""
    problem: str | None = None


def stored_points(view: StoreView) -> Iterator[dict[str, Any]]:
    """The checkpoints that are stored, with the fields of a `CompletedCheckpoint` that a store
    knows, and what they hold where a barrier says how it passed."""
    previous: Checkpoint | None = None
    next_slot: Slot | None = None
    for checkpoint in view.slots.checkpoints.values():
        follows = checkpoint.slot == next_slot
        yield _point(view, checkpoint, previous if follows else None)
        if not is_canonical(checkpoint):
            previous = checkpoint
        elif not follows:
            previous = None
        next_slot = Slot(checkpoint.slot + 1)


def _point(view: StoreView, checkpoint: Checkpoint, previous: Checkpoint | None) -> dict[str, Any]:
    """`previous` is the checkpoint before, where that is stored as well."""
    descriptors = view.inventory.descriptors

    def shared(name: str) -> Mapping[str, int]:
        return descriptors[name].shared_bytes if name in descriptors else {}

    sizes = msgspec.to_builtins(checkpoint_sizes(checkpoint, previous, shared))
    if previous is None:
        sizes = {name: size for name, size in sizes.items() if "incremental" not in name}
    barriers = barriers_of(checkpoint)
    return {
        "checkpoint": checkpoint.slot,
        "attempt": checkpoint.checkpoint_id,
        "generation": checkpoint.author.generation,
        "created_ms": checkpoint.created_ms,
        "manifest_bytes": view.slots.sizes[checkpoint.slot],
        "sizes": sizes,
        "unaligned": any(facts.unaligned for facts in barriers),
        "savepoint": checkpoint.name if isinstance(checkpoint, Savepoint) else None,
        "canonical": is_canonical(checkpoint),
        "contents": msgspec.to_builtins(contents_of(checkpoint)) if barriers else None,
    }


def slot_parts(view: StoreView) -> Iterator[SlotPart]:
    """All slots that count, newest first."""
    checkpoints = view.slots.checkpoints
    detailed = sorted(checkpoints)[-DETAILED:]
    for verdict in reversed(verdicts_on(view.slots, view.findings)):
        slot = verdict.checkpoint
        summary, problem = slot_summary(view.slots, slot), problem_of(view, slot)
        yield SlotPart(
            **msgspec.structs.asdict(summary),
            restorable=verdict.restorable,
            operators=checkpoint_summary(checkpoints[slot]).operators if slot in detailed else None,
            problem=problem,
        )


def problem_of(view: StoreView, slot: Slot) -> str | None:
    """Why a slot cannot be restored; None when nothing speaks against it."""
    error = view.slots.unreadable.get(slot)
    if error is not None:
        return str(error)
    return next((str(finding) for finding in view.findings if slot in finding.unusable), None)


def problems(view: StoreView, *, running: bool) -> tuple[Finding, ...]:
    """What is wrong with the store, and what to do, where `running` says that its job runs here."""
    return advised(view.findings, verdicts_on(view.slots, view.findings), running=running)
