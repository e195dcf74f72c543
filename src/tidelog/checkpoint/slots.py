"""The slot log: create-once manifests in a row, and fencing by that one primitive.

Invariants:
- slot n + 1 is written only by a writer that has seen slot n; the store lets one writer win it;
- a name that is free may have been taken and dropped by retention meanwhile, so a slot counts for
  its writer only when no slot lies above it *after* it was written. That is enough, because the
  newest start is never deleted: a newer generation that ever existed has a slot up there;
- a generation is the number of its own `start` slot, so generations grow and are unique;
- the newest entry names the older slots that count, so what a writer leaves below it that found
  out too late is never taken for a checkpoint.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from tidelog.checkpoint.manifest import (
    Author,
    Checkpoint,
    Entry,
    Savepoint,
    Start,
    decode_entry,
    decode_slot,
    encode_entry,
)
from tidelog.checkpoint.retention import counted, in_ranges, slot_ranges
from tidelog.concurrency import AT_ONCE, together
from tidelog.effects import Effects
from tidelog.errors import (
    CheckpointNotFoundError,
    ConfigError,
    CorruptObjectError,
    FencedError,
    FormatVersionError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
)
from tidelog.events import Event
from tidelog.ids import Generation, Slot
from tidelog.storage import object_names
from tidelog.storage.errors import no_conditional_put
from tidelog.storage.port import ObjectStore

logger = logging.getLogger(__name__)

_NOT_OURS: Final = (FormatVersionError, ConfigError)
"""Errors of entries that another job has written: of a newer format, or encrypted with a key that
was made after we had opened the store."""


_ERA: Final = 1_000_000_000
"""More slots than a job ever writes."""


def after_all(slot: Slot) -> Slot:
    """A slot above all that the store with this slot will ever have: a start that takes it in
    another store, to go on with the same output, is newer for every sink than those of this one.
    """
    return Slot((slot // _ERA + 1) * _ERA)


class TakeOver(msgspec.Struct, frozen=True):
    """The outcome of a start: its generation, and the slots below its own, in ascending order."""

    generation: Generation
    attempt: str
    slots: tuple[Slot, ...]
    """Checkpoints that count, and slots of which it is not known."""
    left_over: tuple[Slot, ...]
    """Starts of fenced generations, and checkpoints that these wrote too late."""


async def list_slots(store: ObjectStore, after: Slot | None = None) -> dict[Slot, int]:
    """Stored slots, or those after a slot, in ascending order, and their sizes in bytes.

    One LIST, not for the hot path.
    """
    start = object_names.checkpoint(after) if after is not None else ""
    sizes: dict[Slot, int] = {}
    async for info in store.list(object_names.CHECKPOINTS, start):
        if (slot := object_names.slot_of(info.name)) is not None:
            sizes[slot] = info.size
    return sizes


async def read_slot(store: ObjectStore, slot: Slot) -> Entry:
    """The entry of a slot; raises ObjectNotFoundError, CorruptObjectError, FormatVersionError."""
    return decode_slot(await store.get(object_names.checkpoint(slot)), slot)


def named_checkpoints(entries: Iterable[Entry]) -> dict[int, str | None]:
    """The checkpoints among entries by number, savepoints with their name."""
    return {
        entry.slot: entry.name if isinstance(entry, Savepoint) else None
        for entry in entries
        if isinstance(entry, Checkpoint)
    }


def no_such_checkpoint(
    what: str, existing: Mapping[int, str | None], lister: str = "tidelog checkpoints list"
) -> CheckpointNotFoundError:
    """The error of a choice that is none of the `existing` numbers and names, all of which the
    command `lister` shows.
    """
    ranges = (f"{a} to {b}" if a < b else f"{a}" for a, b in slot_ranges(map(Slot, existing)))
    names = sorted(f"savepoint {name}" for name in existing.values() if name is not None)
    choices = ", ".join([*ranges, *names]) or "those in the store, of which there are none"
    return CheckpointNotFoundError(
        what,
        expected=f"one of {choices}",
        found="none of that number or name",
        action=f"choose one that `{lister} URL` shows",
    )


class SlotLog:
    """Reads and appends slots of one store."""

    def __init__(self, store: ObjectStore, effects: Effects) -> None:
        self._store = store
        self._effects = effects
        self._last_read: Entry | None = None

    async def slots(self, after: Slot | None = None) -> list[Slot]:
        """As `list_slots`, without sizes."""
        return list(await list_slots(self._store, after))

    async def read(self, slot: Slot) -> Entry:
        """The entry of a slot; raises as `read_slot`."""
        self._last_read = await read_slot(self._store, slot)
        return self._last_read

    async def take_over(
        self,
        job: str,
        first: Slot = Slot(0),  # noqa: B008
        *,
        goes_back: bool = False,
        moved_to: str = "",
    ) -> TakeOver:
        """Write our `start` after the last slot and thereby fence all older generations; its slot
        is `first` at least. The job goes on where it `moved_to`, if that is somewhere else.

        Raises FormatVersionError when a newer release has written the newest slot, unless the start
        `goes_back` to a savepoint of this store.
        """
        attempt = self._effects.token()
        occupied: set[Slot] = set()
        while True:
            # With what a listing that lags behind does not show yet.
            stored_slots = sorted(occupied.union(await self.slots()))
            slot = Slot(max(first, stored_slots[-1] + 1 if stored_slots else 0))
            earlier, newest = await self._counted(stored_slots, goes_back=goes_back)
            if newest is not None:
                # The start that ours supersedes.
                earlier = [number for number in earlier if number != Slot(newest.author.generation)]
            author = Author(Generation(slot), attempt)
            now_ms = self._effects.clock.now_ms()
            history = slot_ranges(earlier)
            start = Start(slot, author, now_ms, job, history=history, moved_to=moved_to)
            holder: Entry | None = None
            try:
                if not await self._wins(start):
                    holder = await self._holder(object_names.checkpoint(slot))
            except ObjectNotFoundError:  # taken, and dropped before we could read by whom
                continue
            # Our own entry: an earlier attempt got through and only its answer was lost.
            # Otherwise someone was faster: what they wrote is now the last thing we have seen.
            if (holder is None or holder == start) and await self._is_newest(start):
                left_over = tuple(sorted(set(stored_slots).difference(earlier)))
                Event.GENERATION_STARTED.log(logger, job=job, generation=slot)
                return TakeOver(author.generation, attempt, tuple(earlier), left_over)
            Event.START_RACED.log(logger, generation=slot)
            occupied.add(slot)

    async def _counted(
        self, stored_slots: list[Slot], *, goes_back: bool = False
    ) -> tuple[list[Slot], Entry | None]:
        """The slots that count, and the newest entry that can be read; it `goes_back` behind those
        of newer releases.
        """
        last_read = self._last_read
        if last_read is not None and stored_slots and last_read.slot == stored_slots[-1]:
            # The newest entry is never dropped, so its slot has not had another one meanwhile.
            return counted(stored_slots, last_read), last_read
        for slot in reversed(stored_slots):
            try:
                newest = await self.read(slot)
            except (CorruptObjectError, FormatVersionError, ObjectNotFoundError) as error:
                if isinstance(error, FormatVersionError) and not goes_back:
                    raise
                # Damaged, newer, or dropped by the job that runs.
                Event.CHECKPOINT_UNREADABLE.log(logger, checkpoint=slot, error=error)
                continue
            return counted(stored_slots, newest), newest
        return stored_slots, None

    async def _is_newest(self, start: Start) -> bool:
        """Whether no slot lies above our start; creates it again meanwhile: a store that lets us
        would let a zombie too. Equal bytes, so nothing is lost when it does.
        """
        later_slots, again = await together([self.slots(start.slot), self._wins(start)])
        if again and not later_slots:  # else a newer generation may have removed ours
            raise no_conditional_put(self._store.url, "a second create of the same name succeeded")
        return not later_slots

    async def append(self, entry: Checkpoint) -> Checkpoint | None:
        """Write a checkpoint into its slot; None when it is there and no newer job has started.

        Otherwise the slot holds an earlier checkpoint of ours whose answer was lost: it is
        returned, and this one belongs into the next slot. Raises FencedError when another
        generation holds the slot or has started. After any other error nobody knows: the next
        checkpoint is appended to the same slot.
        """
        name = object_names.checkpoint(entry.slot)
        holder: Entry | None = None
        if not await self._wins(entry):
            try:
                holder = await self._holder(name)
            except (*_NOT_OURS, ObjectNotFoundError) as newer:
                # Ours it cannot be: we drop no slot that we do not know.
                raise fenced(entry.author.generation, name) from newer
        if holder is None or holder == entry:
            await self.prove_newest(entry.slot, entry.author.generation)
            return None
        if isinstance(holder, Checkpoint) and holder.author == entry.author:
            return holder
        raise fenced(entry.author.generation, name)

    async def prove_newest(self, slot: Slot, generation: Generation) -> None:
        """Raise FencedError when a newer generation has started since we won `slot`.

        Or before: then the slot's name was free again, and what we wrote there is removed.
        """
        later_slots = await self.slots(slot)
        if not later_slots:
            return
        newest = await self._newest(later_slots, generation)
        if newest is not None and not in_ranges(slot, newest.history):
            await self.remove_left_over([slot])
        raise fenced(generation, object_names.checkpoint(later_slots[-1]))

    async def prove_not_fenced(self, last: Slot, author: Author) -> None:
        """Raise FencedError when another generation has a slot above the last one that we know.

        For writers whose checkpoints fail before they come to their slot: without it they would
        go on for ever. Raises StorageError when nobody knows.
        """
        later_slots = await self.slots(last)
        newest = await self._newest(later_slots, author.generation) if later_slots else None
        if newest is not None and newest.author != author:
            raise fenced(author.generation, object_names.checkpoint(newest.slot))

    async def _newest(self, later_slots: list[Slot], generation: Generation) -> Entry | None:
        """The newest of these entries that can be read; one of a newer release is not ours."""
        try:
            return (await self._counted(later_slots))[1]
        except _NOT_OURS as newer:
            raise fenced(generation, object_names.checkpoint(later_slots[-1])) from newer

    async def _holder(self, name: str) -> Entry:
        return decode_entry(await self._store.get(name), name)

    async def _wins(self, entry: Entry) -> bool:
        try:
            await self._store.create(object_names.checkpoint(entry.slot), encode_entry(entry))
        except ObjectExistsError:
            return False
        return True

    async def remove(self, slot: Slot) -> None:
        """Delete a slot; the caller never passes the newest `start`."""
        await self._store.delete(object_names.checkpoint(slot))

    async def remove_left_over(self, slots: Iterable[Slot]) -> None:
        """Delete slots that do not count; a failure is logged, and the next start tries again."""
        await together(map(self._try_to_remove, slots), AT_ONCE)

    async def _try_to_remove(self, slot: Slot) -> None:
        try:
            await self.remove(slot)
        except StorageError as error:
            Event.CHECKPOINT_NOT_DELETED.log(logger, checkpoint=slot, error=error)


def fenced(generation: Generation, name: str) -> FencedError:
    """The error of a writer that lost its store to a newer generation; logs the event."""
    Event.GENERATION_FENCED.log(logger, generation=generation, object=name)
    return FencedError(
        f"generation {generation} was fenced at {name}",
        expected="to be the only job on this store",
        found="a newer start of the job owns it",
        action="let the newer process go on, or stop it and start this job again",
        retry_safe=False,
    )
