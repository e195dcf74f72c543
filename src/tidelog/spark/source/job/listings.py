"""Views `checkpoints`, `objects` and `blocks` of a store: what lies in it.

Invariants: for view `checkpoints` a slot that cannot be read is a row that says why; for the others
it is an error, since its references are unknown. What a running job drops meanwhile has no row. An
orphan is what `tidelog gc` would delete, by the same rule. A footer is used only after its
checksum has passed; what only the headers of blocks say costs reading them all, so that is done for
the columns that need it alone.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec

from tidelog.catalog.inventory import Inventory, RangeUse, range_uses, read_inventory, read_slots
from tidelog.catalog.summary import entry_summary
from tidelog.changelog.block import CODEC_ZSTD, Block, BlockKind, newer, open_block
from tidelog.changelog.segment import HEADER_BYTES, Entry, read_footer
from tidelog.checkpoint.manifest import Checkpoint, SubtaskState
from tidelog.checkpoint.manifest import Entry as SlotEntry
from tidelog.checkpoint.retention import checkpoint_objects, collectable
from tidelog.checkpoint.slots import list_slots, read_slot
from tidelog.errors import CorruptObjectError, FormatVersionError, ObjectNotFoundError
from tidelog.ids import Slot
from tidelog.spark.format.segment import stored_entries
from tidelog.spark.source.parts import Listing, ReadPart, ReadRequest, Row
from tidelog.storage import object_names
from tidelog.storage.port import ObjectInfo, ObjectStore


async def plan_checkpoints(store: ObjectStore, request: ReadRequest) -> Sequence[ReadPart]:
    """A part per slot; raises what the store raises."""
    sizes = await list_slots(store)
    return [
        Listing(partial(_slot_rows, slot, size), size, may_vanish=True)
        for slot, size in sizes.items()
        if request.options.filter.accepts(checkpoint=slot)
    ]


async def _slot_rows(slot: Slot, size: int, store: ObjectStore) -> list[Row]:
    try:
        return [_slot_row(await read_slot(store, slot), size)]
    except (CorruptObjectError, FormatVersionError) as error:
        unreadable = {"kind": "unreadable", "error": str(error)}
        return [{**unreadable, "checkpoint": slot, "manifest_bytes": size}]


def _slot_row(entry: SlotEntry, size: int) -> Row:
    summary = msgspec.structs.asdict(entry_summary(entry, size))
    row = {**summary, "created": entry.created_ms * 1000}
    if not isinstance(entry, Checkpoint):
        return row
    subtasks = sum(len(operator.subtasks) for operator in entry.operators)
    return {**row, "operators": len(entry.operators), "subtasks": subtasks}


_OBJECT_KINDS: Final = {
    object_names.SEGMENTS: "segment",
    object_names.TABLES: "table",
    object_names.MATERIALIZATIONS: "materialization",
}


async def plan_objects(store: ObjectStore, request: ReadRequest) -> Sequence[ReadPart]:
    """One part with a row per object, by name."""
    return [Listing(_object_rows)]


async def _object_rows(store: ObjectStore) -> list[Row]:
    # Slots before the listing: what they name was written before it.
    inventory = await read_inventory(store)
    if any(isinstance(error, ObjectNotFoundError) for error in inventory.unreadable.values()):
        # A running job may have dropped the slots that name it since: then these do not count.
        present = await read_slots(store, earlier=inventory.slots)
        inventory = _with_slots(inventory, present.sizes)
    for error in (*inventory.slots.unreadable.values(), *inventory.unreadable.values()):
        raise error
    infos = [info async for info in store.list("")]
    users: dict[str, list[int]] = defaultdict(list)
    for slot, checkpoint in inventory.slots.checkpoints.items():
        for need in inventory.needs(checkpoint):
            users[need.name].append(slot)
    orphans = _orphans(inventory, users, infos)
    return [
        {
            "name": info.name,
            "kind": kind_of(info.name),
            "bytes": info.size,
            "generation": object_names.generation_of(info.name),
            "referenced_by": users.get(info.name, []),
            "orphan": orphans.get(info.name),
        }
        for info in infos
    ]


def _with_slots(inventory: Inventory, present: Collection[Slot]) -> Inventory:
    """The inventory as far as these slots make it."""
    slots = inventory.slots
    entries = {slot: entry for slot, entry in slots.entries.items() if slot in present}
    present_slots = replace(slots, entries=entries)
    names = set[str]().union(*map(checkpoint_objects, present_slots.checkpoints.values()))
    unreadable = {name: e for name, e in inventory.unreadable.items() if name in names}
    return replace(inventory, slots=present_slots, unreadable=unreadable)


def kind_of(name: str) -> str:
    if object_names.slot_of(name) is not None:
        return "checkpoint"
    if object_names.generation_of(name) is None:
        return "other"
    return _OBJECT_KINDS[name.partition("/")[0] + "/"]


def _orphans(
    inventory: Inventory, users: Mapping[str, Sequence[int]], infos: Sequence[ObjectInfo]
) -> dict[str, bool]:
    """Whether an object is garbage for certain; those are left out of which that is not known:
    the newest generation may still name what nothing names yet.
    """
    orphans = {info.name: False for info in infos if object_names.slot_of(info.name) is not None}
    orphans |= dict.fromkeys(users, False)
    generation = inventory.slots.generation
    if generation is None:
        return orphans
    garbage, _ = collectable((info.name for info in infos), users.keys(), generation)
    return orphans | dict.fromkeys(garbage, True)


_IN_HEADERS: Final = ("codec", "raw_bytes")
_BLOCK_KINDS: Final = {
    int(BlockKind.CHANGES): "changes",
    int(BlockKind.METADATA): "metadata",
    int(BlockKind.SPARK_CHANGELOG): "spark-changelog",
    int(BlockKind.IN_FLIGHT): "in-flight",
}

_Reader = Callable[[ObjectStore, str, int], Coroutine[Any, Any, list[Row]]]
"""Reads what a segment says of its blocks, by its name and size."""


async def plan_blocks(store: ObjectStore, request: ReadRequest) -> Sequence[ReadPart]:
    """A part per segment, and per manifest with inline blocks; raises what a damaged slot raises,
    and what the store raises.
    """
    retained = (await read_slots(store)).all_checkpoints()
    uses = range_uses(retained)
    created = {checkpoint.slot: checkpoint.created_ms for checkpoint in retained}
    read = _from_headers if request.asks_for(*_IN_HEADERS) else _from_footer
    parts: list[Listing] = []
    async for info in store.list(object_names.SEGMENTS):
        if object_names.generation_of(info.name) is not None:
            rows = partial(_block_rows, read, info, uses.get(info.name, ()), created)
            parts.append(Listing(rows, info.size, may_vanish=True))
    for checkpoint in retained:
        if any(next(_inline(state), None) for _, state in checkpoint.subtasks()):
            parts.append(Listing(partial(_inline_rows, checkpoint)))
    return parts


async def _block_rows(
    read: _Reader,
    segment: ObjectInfo,
    uses: Sequence[RangeUse],
    created: Mapping[Slot, int],
    store: ObjectStore,
) -> list[Row]:
    """A row per block of a segment; `created` are the times of checkpoints in milliseconds."""
    name = segment.name
    rows: list[Row] = []
    for row in await read(store, name, segment.size):
        slots: set[Slot] = set()
        for use in uses:
            if row["offset"] in use.bytes:
                slots |= set(use.slots)
        users = sorted(slots)
        time = created[users[0]] * 1000 if users else None
        generation = object_names.generation_of(name)
        of_users = {"object": name, "generation": generation, "referenced_by": users, "time": time}
        rows.append({**row, **of_users})
    return rows


async def _inline_rows(checkpoint: Checkpoint, _: ObjectStore) -> list[Row]:
    """A row per block in a manifest, which planning has read."""
    name = object_names.checkpoint(checkpoint.slot)
    inline = {
        "object": name,
        "generation": checkpoint.author.generation,
        "referenced_by": [checkpoint.slot],
        "time": checkpoint.created_ms * 1000,
    }
    rows: list[Row] = []
    for operator, state in checkpoint.subtasks():
        for writer, data in _inline(state):
            rows.append({**_header_row(operator.id, writer, open_block(data, 0, name)), **inline})
    return rows


def _inline(state: SubtaskState) -> Iterator[tuple[int, bytes]]:
    """The blocks that live in a manifest, with the subtask that wrote each."""
    for layer in state.layers:
        for data in layer.inline:
            yield layer.subtask, data
    if state.in_flight is not None:
        for data in state.in_flight.inline:
            yield state.index, data


async def _from_footer(store: ObjectStore, name: str, size: int) -> list[Row]:
    return [_footer_row(entry, name) for entry in await stored_entries(store, name, size, Entry)]


async def _from_headers(store: ObjectStore, name: str, size: int) -> list[Row]:
    data = await store.get(name)
    rows: list[Row] = []
    offset = HEADER_BYTES
    for entry in read_footer(data, name).entries:
        block = open_block(data, offset, name)
        rows.append({**_header_row(entry.operator, entry.subtask, block), "offset": offset})
        offset += block.size
    return rows


def _footer_row(entry: Entry, name: str) -> Row:
    if entry.kind not in _BLOCK_KINDS:
        raise newer(name, entry.offset, "a known kind of block", f"kind {entry.kind}")
    return {
        **_row(entry.operator, entry.subtask, entry),
        "offset": entry.offset,
        "stored_bytes": entry.length,
    }


def _header_row(operator: str, subtask: int, block: Block) -> Row:
    return {
        **_row(operator, subtask, block),
        "codec": "zstd" if block.codec == CODEC_ZSTD else "none",
        "raw_bytes": block.raw_bytes,
        "stored_bytes": block.size,
    }


def _row(operator: str, subtask: int, block: Entry | Block) -> Row:
    return {
        "operator": operator,
        "subtask": subtask,
        "kind": _BLOCK_KINDS[block.kind],
        "first_seqno": block.first,
        "end_seqno": block.first + block.count,
        "changes": block.count,
        "key_group_min": block.key_group_min,
        "key_group_max": block.key_group_max,
    }
