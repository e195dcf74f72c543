"""View `checkpoints` of a store, a part per slot; and the checkpoints that other views read.

Invariants: for the view a slot that cannot be read is a row that says why, and one that a running
job drops meanwhile is no row; for all others an unreadable slot is an error, never left out: its
references are unknown.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from tidelog.catalog.inventory import find_checkpoint, read_slots
from tidelog.checkpoint.manifest import Checkpoint, Entry, Savepoint
from tidelog.checkpoint.slots import list_slots, read_slot
from tidelog.errors import CorruptObjectError, FormatVersionError, ObjectNotFoundError
from tidelog.ids import Slot
from tidelog.spark.source.frames import Row
from tidelog.spark.source.parts import Listing, Part, Request
from tidelog.storage.port import ObjectStore


async def checkpoints(store: ObjectStore) -> list[Checkpoint]:
    """All retained checkpoints, oldest first.

    Raises CorruptObjectError and FormatVersionError for a slot that cannot be read.
    """
    return (await read_slots(store)).all_checkpoints()


async def chosen(store: ObjectStore, request: Request) -> list[Checkpoint]:
    """The checkpoints that option slot chose, as far as filters want them.

    Raises as `find_checkpoint`, and ObjectNotFoundError when it chose none of those there are.
    """
    numbers = request.options.filter.of("slot")
    if request.options.slots == "latest":
        found = [await find_checkpoint(store, None)]
    elif len(numbers.spans) == 1 and numbers.spans[0][0] == numbers.spans[0][1]:
        found = [await find_checkpoint(store, Slot(numbers.spans[0][0]))]
    else:
        retained = await checkpoints(store)
        found = [each for each in retained if each.slot in numbers]
        if not found:
            raise _none_chosen(store.url, [each.slot for each in retained])
    return [each for each in found if request.filter.accepts(slot=each.slot)]


def _none_chosen(url: str, slots: list[Slot]) -> ObjectNotFoundError:
    return ObjectNotFoundError(
        f"option slot, store {url}",
        expected=f"slots of checkpoints, such as {', '.join(map(str, slots)) or 'none yet'}",
        found="none of them",
        action="choose a checkpoint that `tidelog checkpoints list URL` shows",
    )


async def plan(store: ObjectStore, request: Request) -> Sequence[Part]:
    """A part per slot; raises what the store raises."""
    sizes = await list_slots(store)
    return [
        Listing(partial(_rows, slot, size), size, may_vanish=True)
        for slot, size in sizes.items()
        if request.filter.accepts(slot=slot)
    ]


async def _rows(slot: Slot, size: int, store: ObjectStore) -> list[Row]:
    try:
        row = _fields(await read_slot(store, slot))
    except (CorruptObjectError, FormatVersionError) as error:
        row = {"kind": "unreadable", "error": str(error)}
    return [{**row, "slot": slot, "manifest_bytes": size}]


def _fields(entry: Entry) -> dict[str, Any]:
    row = {
        "kind": "start",
        "generation": entry.author.generation,
        "created": entry.created_ms * 1000,
        "job": entry.job,
    }
    if not isinstance(entry, Checkpoint):
        return row
    states = [state for _, state in entry.subtasks()]
    return row | {
        "kind": "savepoint" if isinstance(entry, Savepoint) else "checkpoint",
        "checkpoint_id": entry.checkpoint_id,
        "final": entry.final,
        "operators": len(entry.operators),
        "subtasks": len(states),
        "log_bytes": sum(part.length for state in states for part in state.log),
        "materialized_bytes": sum(
            state.materialization.table_bytes for state in states if state.materialization
        ),
        "inline_bytes": sum(len(data) for state in states for data in state.inline),
    }
