"""View `blocks` of a store: the blocks in its segments and in its manifests, a part per object.

Invariants: a footer is used only after its checksum has passed; a segment that a running job
deletes meanwhile has no rows. What only the headers of blocks say costs reading them all, so that
is done only for the columns that need it.
"""

from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from tidelog.changelog.block import CODEC_ZSTD, Block, BlockKind, newer, open_block
from tidelog.changelog.segment import HEADER_BYTES, Entry, read_footer
from tidelog.checkpoint.manifest import Checkpoint, SubtaskState
from tidelog.spark.format.segment import stored_entries
from tidelog.spark.source.frames import Row
from tidelog.spark.source.job.checkpoints import checkpoints
from tidelog.spark.source.parts import Listing, Part, Request
from tidelog.storage import object_names
from tidelog.storage.port import ObjectInfo, ObjectStore

_IN_HEADERS: Final = ("codec", "raw_bytes")
_KINDS: Final = {
    int(BlockKind.CHANGES): "changes",
    int(BlockKind.METADATA): "metadata",
    int(BlockKind.SPARK_CHANGELOG): "spark-changelog",
    int(BlockKind.IN_FLIGHT): "in-flight",
    int(BlockKind.IN_FLIGHT_RECORDS): "in-flight",
}

_Fields = dict[str, Any]
_Reader = Callable[[ObjectStore, str, int], Coroutine[Any, Any, list[_Fields]]]
"""Reads what a segment says of its blocks, by its name and size."""


class Use(NamedTuple):
    """Bytes [start, end) of a segment and the checkpoint that names them."""

    start: int
    end: int
    slot: int
    created_ms: int


async def plan(store: ObjectStore, request: Request) -> Sequence[Part]:
    """A part per segment, and per manifest with inline blocks; raises what a damaged slot raises,
    and what the store raises.
    """
    retained = await checkpoints(store)
    uses = used(retained)
    read = _from_headers if request.asks_for(*_IN_HEADERS) else _from_footer
    segments = [
        Listing(partial(_rows, read, info, uses.get(info.name, ())), info.size, may_vanish=True)
        async for info in store.list(object_names.SEGMENTS)
        if object_names.generation_of(info.name) is not None
    ]
    manifests = [
        Listing(partial(_inline_rows, each))
        for each in retained
        if any(_inline(state) for _, state in each.subtasks())
    ]
    return [*segments, *manifests]


def used(retained: Sequence[Checkpoint]) -> Mapping[str, Sequence[Use]]:
    """What checkpoints name, by segment; oldest checkpoint first."""
    uses: dict[str, dict[Use, None]] = defaultdict(dict)
    for checkpoint in retained:
        for _, state in checkpoint.subtasks():
            for part in state.ranges:
                end = part.offset + part.length
                use = Use(part.offset, end, checkpoint.slot, checkpoint.created_ms)
                uses[part.segment][use] = None
    return {segment: tuple(found) for segment, found in uses.items()}


async def _rows(
    read: _Reader, segment: ObjectInfo, uses: Sequence[Use], store: ObjectStore
) -> list[Row]:
    """A row per block of a segment."""
    name = segment.name
    of_all = {"object": name, "generation": object_names.generation_of(name)}
    blocks = await read(store, name, segment.size)
    return [row | of_all | _users(uses, row["offset"]) for row in blocks]


def _users(uses: Sequence[Use], offset: int) -> _Fields:
    users = [use for use in uses if use.start <= offset < use.end]
    return {
        "referenced_by": [use.slot for use in users],
        "time": users[0].created_ms * 1000 if users else None,
    }


async def _inline_rows(checkpoint: Checkpoint, _: ObjectStore) -> list[Row]:
    """A row per block in a manifest, which planning has read."""
    name = object_names.checkpoint(checkpoint.slot)
    inline = {
        "object": name,
        "generation": checkpoint.author.generation,
        "referenced_by": [checkpoint.slot],
        "time": checkpoint.created_ms * 1000,
    }
    return [
        _row(operator.id, state.index, open_block(data, 0, name)) | inline
        for operator, state in checkpoint.subtasks()
        for data in _inline(state)
    ]


def _inline(state: SubtaskState) -> tuple[bytes, ...]:
    """The blocks that live in a manifest."""
    return state.inline if state.in_flight is None else (*state.inline, *state.in_flight.inline)


async def _from_footer(store: ObjectStore, name: str, size: int) -> list[_Fields]:
    return [_entry_row(each, name) for each in await stored_entries(store, name, size, Entry)]


async def _from_headers(store: ObjectStore, name: str, size: int) -> list[_Fields]:
    data = await store.get(name)
    rows, offset = [], HEADER_BYTES
    for entry in read_footer(data, name).entries:
        block = open_block(data, offset, name)
        rows.append(_row(entry.operator, entry.subtask, block) | {"offset": offset})
        offset += block.size
    return rows


def _entry_row(entry: Entry, name: str) -> _Fields:
    if entry.kind not in _KINDS:
        raise newer(name, entry.offset, "a known kind of block", f"kind {entry.kind}")
    return {
        "offset": entry.offset,
        "operator": entry.operator,
        "subtask": entry.subtask,
        "kind": _KINDS[entry.kind],
        "first_seqno": entry.first,
        "end_seqno": entry.first + entry.count,
        "changes": entry.count,
        "key_group_min": entry.key_group_min,
        "key_group_max": entry.key_group_max,
        "stored_bytes": entry.length,
    }


def _row(operator: str, subtask: int, block: Block) -> _Fields:
    return {
        "operator": operator,
        "subtask": subtask,
        "kind": _KINDS[block.kind],
        "first_seqno": block.first,
        "end_seqno": block.end,
        "changes": block.count,
        "key_group_min": block.key_group_min,
        "key_group_max": block.key_group_max,
        "codec": "zstd" if block.codec == CODEC_ZSTD else "none",
        "raw_bytes": block.raw_bytes,
        "stored_bytes": block.size,
    }
