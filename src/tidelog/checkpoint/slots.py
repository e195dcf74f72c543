"""The slot log: create-once manifests in a row, and fencing by that one primitive.

Invariants:
- slot n + 1 is written only by a writer that has seen slot n; the store lets one writer win it;
- a slot that was free may have been taken and dropped by retention meanwhile, so a start, and a
  checkpoint whose last attempt had no answer, count only when no slot lies above them;
- a generation is the number of its own `start` slot, so generations grow and are unique;
- `start` slots are never deleted: whatever an older generation had seen last, the slot it wants
  next is the newer generation's start or a slot that was taken before it, so it always collides.
"""

from dataclasses import dataclass

from tidelog.checkpoint.manifest import (
    Author,
    Checkpoint,
    Entry,
    Start,
    decode_entry,
    decode_slot,
    encode_entry,
)
from tidelog.effects import Effects
from tidelog.errors import (
    FencedError,
    FormatVersionError,
    ObjectExistsError,
    ObjectNotFoundError,
)
from tidelog.ids import Generation, Slot
from tidelog.storage import paths
from tidelog.storage.port import ObjectStore
from tidelog.storage.raising import no_conditional_put


@dataclass(frozen=True, slots=True)
class TakeOver:
    """The outcome of a start: who we are, and the slots that exist below our start."""

    generation: Generation
    attempt: str
    slots: tuple[Slot, ...]


class SlotLog:
    """Reads and appends slots of one store."""

    def __init__(self, store: ObjectStore, effects: Effects) -> None:
        self._store = store
        self._effects = effects
        self._unanswered: Slot | None = None
        """A checkpoint may be in this slot, or may have been: the answer never came."""

    async def slots(self) -> list[Slot]:
        """Stored slots in ascending order; one LIST, not for the hot path."""
        infos = [info async for info in self._store.list(paths.CHECKPOINTS)]
        return [slot for info in infos if (slot := paths.slot_of(info.name)) is not None]

    async def read(self, slot: Slot) -> Entry:
        """What a slot holds; raises ObjectNotFoundError, and as `decode_slot`."""
        return decode_slot(await self._store.get(paths.checkpoint(slot)), slot)

    async def take_over(self, job: str) -> TakeOver:
        """Write our `start` after the last slot and thereby fence all older generations."""
        attempt = self._effects.token()
        slots = await self.slots()
        while True:
            slot = Slot(slots[-1] + 1 if slots else 0)
            author = Author(Generation(slot), attempt)
            start = Start(slot, author, self._effects.clock.now_ms(), job)
            try:
                found = await self._create(start)
            except ObjectNotFoundError:  # taken, and dropped before we could read by whom
                slots = await self.slots()
                continue
            # Our own entry: an earlier attempt got through and only its answer was lost.
            if found is None or found == start:
                # A job that runs may have gone on above a slot that it had taken and dropped.
                if not await self._slots_above(slot):
                    await self._prove_create_once(start)
                    return TakeOver(author.generation, attempt, tuple(slots))
                slots = await self.slots()
            else:
                # Someone was faster: what they wrote is now the last thing we have seen.
                slots.append(slot)

    async def _prove_create_once(self, start: Start) -> None:
        """Create our own slot again: a store that lets us would let a zombie too.

        Equal bytes, so nothing is lost when it does.
        """
        if await self._create(start) is None:
            raise no_conditional_put(self._store.url, "a second create of the same name succeeded")

    async def append(self, entry: Checkpoint) -> Checkpoint | None:
        """Write a checkpoint into its slot; None when that succeeded.

        Otherwise the slot holds an earlier checkpoint of ours whose answer was lost: it is
        returned, and this one belongs into the next slot. Raises FencedError when another
        generation holds the slot.
        """
        name = paths.checkpoint(entry.slot)
        in_doubt = self._unanswered == entry.slot
        self._unanswered = entry.slot
        try:
            found = await self._create(entry)
        except (FormatVersionError, ObjectNotFoundError) as newer:
            # Ours it cannot be: we write no other format, and drop no slot that we do not know.
            raise fenced(entry.author.generation, name) from newer
        if found is None and in_doubt:
            await self._prove_newest(entry)
        self._unanswered = None
        if found is None or found == entry:
            return None
        if isinstance(found, Checkpoint) and found.author == entry.author:
            return found
        raise fenced(entry.author.generation, name)

    async def _prove_newest(self, entry: Checkpoint) -> None:
        """Raise FencedError when a newer job had our earlier checkpoint here, and dropped it."""
        if await self._slots_above(entry.slot):
            await self.remove(entry.slot)
            raise fenced(entry.author.generation, paths.checkpoint(entry.slot))

    async def _slots_above(self, slot: Slot) -> bool:
        after = paths.checkpoint(slot)
        names = [info.name async for info in self._store.list(paths.CHECKPOINTS, after)]
        return any(paths.slot_of(name) is not None for name in names)

    async def _create(self, entry: Entry) -> Entry | None:
        """Write a slot; the entry that holds it already, or None when we won it."""
        name = paths.checkpoint(entry.slot)
        try:
            await self._store.create(name, encode_entry(entry))
        except ObjectExistsError:
            return decode_entry(await self._store.get(name), name)
        return None

    async def remove(self, slot: Slot) -> None:
        """Delete a checkpoint's slot; the caller never passes a `start`."""
        await self._store.delete(paths.checkpoint(slot))


def fenced(generation: Generation, name: str) -> FencedError:
    """The error of a writer that lost its store to a newer generation."""
    return FencedError(
        f"generation {generation} was fenced at {name}",
        expected="to be the only job on this store",
        found="a newer start of the job owns it",
        action="let the newer process go on, or stop it and start this job again",
        retry_safe=False,
    )
