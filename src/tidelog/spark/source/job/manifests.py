"""The checkpoints that a load is about.

Invariant: a slot that cannot be read is an error, never left out: its references are unknown.
"""

from collections.abc import Collection

from tidelog.checkpoint.inventory import find_checkpoint, list_slots, read_slots
from tidelog.checkpoint.manifest import Checkpoint, decode_slot, is_canonical
from tidelog.errors import ObjectNotFoundError
from tidelog.ids import Slot
from tidelog.spark.source.parts import Request
from tidelog.storage import paths
from tidelog.storage.port import ObjectStore


async def checkpoints(store: ObjectStore) -> list[Checkpoint]:
    """All retained checkpoints, oldest first.

    Raises CorruptObjectError and FormatVersionError for a slot that cannot be read.
    """
    slots = await read_slots(store)
    for error in slots.unreadable.values():
        raise error
    return list(slots.checkpoints.values())


async def chosen(store: ObjectStore, request: Request) -> list[Checkpoint]:
    """The checkpoints that option slot chose, as far as filters want them.

    Raises as `find_checkpoint`, and ObjectNotFoundError when it chose none of those there are.
    """
    numbers = request.options.wanted.of("slot")
    if request.options.slots == "latest":
        found = [await find_checkpoint(store, None)]
    elif len(numbers.spans) == 1 and numbers.spans[0][0] == numbers.spans[0][1]:
        found = [await find_checkpoint(store, Slot(numbers.spans[0][0]))]
    else:
        retained = await checkpoints(store)
        found = [each for each in retained if each.slot in numbers]
        if not found:
            raise _none_chosen(store.url, [each.slot for each in retained])
    return [each for each in found if request.wanted.has(slot=each.slot)]


async def newest(store: ObjectStore) -> Checkpoint | None:
    """The newest checkpoint whose log holds changes; None when there is none yet.

    Raises ObjectNotFoundError when no job has ever started here, and what a damaged slot raises.
    """
    slots = await list_slots(store)
    if not slots:
        return await find_checkpoint(store, None)  # raises, and says what to do
    return await _newest_of(store, slots)


async def _newest_of(store: ObjectStore, slots: Collection[Slot]) -> Checkpoint | None:
    for slot in sorted(slots, reverse=True):
        try:
            entry = decode_slot(await store.get(paths.checkpoint(slot)), slot)
        except ObjectNotFoundError:
            continue  # A running job dropped it since the listing; the newest one stays.
        if isinstance(entry, Checkpoint) and not is_canonical(entry):
            return entry
    return None


def _none_chosen(url: str, slots: list[Slot]) -> ObjectNotFoundError:
    return ObjectNotFoundError(
        f"option slot, store {url}",
        expected=f"slots of checkpoints, such as {', '.join(map(str, slots)) or 'none yet'}",
        found="none of them",
        action="choose a checkpoint that `tidelog checkpoints list URL` shows",
    )
