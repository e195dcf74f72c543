"""Views `checkpoints`, `objects` and `blocks` of a query: what lies in its checkpoint.

Invariants: a commit or an index that cannot be read is said in `error`, and hides no other batch;
for view `blocks` it is an error, since its references are unknown. An orphan is a segment that no
index names; of Spark's own objects, which Spark alone removes, and while a part of the index cannot
be read, it is not said. A footer is used only after its checksum has passed; a segment that a
running query deletes meanwhile has no rows.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from tidelog.changelog.block import HEADER
from tidelog.spark.checkpoint.checkpoint import (
    COMMITS,
    INDEX,
    OFFSETS,
    SEGMENTS,
    STATE,
    QueryCheckpoint,
    is_sidecar,
    read_checkpoint,
    segment_object,
)
from tidelog.spark.checkpoint.inspection import BatchSummary, summarize_batches
from tidelog.spark.checkpoint.locate import locate
from tidelog.spark.checkpoint.restart import Restart, read_restart
from tidelog.spark.format.segment import FooterEntry, read_footer_at
from tidelog.spark.source.parts import Listing, ReadPart, ReadRequest, Row
from tidelog.storage.port import ObjectInfo, ObjectStore


async def plan_checkpoints(store: ObjectStore, request: ReadRequest) -> Sequence[ReadPart]:
    """One part: a batch's figures stand in its commit, its offsets, and the index of others."""
    return [Listing(_batch_rows)]


async def _batch_rows(store: ObjectStore) -> list[Row]:
    """A row per committed batch, oldest first, and per commit that cannot be read."""
    checkpoint = await read_checkpoint(store)
    restart = await read_restart(store, checkpoint, await locate(store, checkpoint))
    summaries = await summarize_batches(store, checkpoint)
    batches = [_batch_row(checkpoint, restart, summary) for summary in summaries]
    unreadable = [
        {"checkpoint": batch, "kind": "unreadable", "error": str(error)}
        for batch, error in checkpoint.damaged_commits.items()
    ]
    return [*batches, *unreadable]


def _batch_row(checkpoint: QueryCheckpoint, restart: Restart, summary: BatchSummary) -> Row:
    error: object = checkpoint.damaged.get(f"{COMMITS}{summary.batch}")
    if error is None and summary.batch == restart.commit:
        error = next(iter(restart.obstacles), None)
    return {
        "checkpoint": summary.batch,
        "kind": "checkpoint",
        "created": _microseconds(summary.started_ms),
        "operators": summary.operators,
        "subtasks": summary.partitions,
        "manifest_bytes": checkpoint.commits[summary.batch].size,
        "log_bytes": summary.log_bytes,
        "error": None if error is None else str(error),
    }


def _microseconds(ms: int | None) -> int | None:
    return None if ms is None else ms * 1000


_KINDS: Final = {
    SEGMENTS: "segment",
    INDEX: "index",
    COMMITS: "commit",
    OFFSETS: "offsets",
    STATE: "state",
}
_VERSIONED: Final = re.compile(r"(\d+)(?:_[^/]+)?\.(zip|changelog)")


async def plan_objects(store: ObjectStore, request: ReadRequest) -> Sequence[ReadPart]:
    """One part with a row per object, by name."""
    return [Listing(_object_rows)]


async def _object_rows(store: ObjectStore) -> list[Row]:
    # The index before the listing: what it names was written before it.
    checkpoint = await read_checkpoint(store)
    batches = _indexed_batches(checkpoint)
    return [_object_row(checkpoint, batches, info) async for info in store.list("")]


_Batches = Mapping[int, int]
"""The number of the batch by the offset of a committed block in its segment."""


def _indexed_batches(checkpoint: QueryCheckpoint) -> Mapping[str, _Batches]:
    """What the index names, by segment."""
    batches: dict[str, dict[int, int]] = defaultdict(dict)
    for name, entry in checkpoint.indexed.items():
        for piece in entry.pieces:
            batches[segment_object(piece.segment)][piece.offset] = name.version - 1
    return batches


def _object_row(
    checkpoint: QueryCheckpoint, batches: Mapping[str, _Batches], info: ObjectInfo
) -> Row:
    kind, orphan = kind_of(info.name), None
    if kind == "segment":
        used_by: Iterable[int] = set(batches.get(info.name, {}).values())
        if used_by or not checkpoint.damaged:
            orphan = not used_by
    else:
        used_by = _batches_of(checkpoint, info.name, kind) & checkpoint.commits.keys()
    return {
        "name": info.name,
        "kind": kind,
        "bytes": info.size,
        "referenced_by": sorted(used_by),
        "orphan": orphan,
    }


def kind_of(name: str) -> str:
    if is_sidecar(name):
        return "checksum"
    kind = next((kind for prefix, kind in _KINDS.items() if name.startswith(prefix)), "other")
    match = _VERSIONED.fullmatch(name.rpartition("/")[2]) if kind == "state" else None
    return {"zip": "snapshot", "changelog": "changelog"}[match[2]] if match else kind


def _batches_of(checkpoint: QueryCheckpoint, name: str, kind: str) -> set[int]:
    leaf = name.rpartition("/")[2]
    if kind in ("commit", "offsets") and leaf.isdecimal():
        return {int(leaf)}
    if kind in ("snapshot", "changelog"):
        return {int(leaf.partition(".")[0].partition("_")[0]) - 1}
    first = leaf.removesuffix(".json")
    if kind == "index" and first.isdecimal() and int(first) in checkpoint.roll_ups:
        document = checkpoint.roll_ups[int(first)]
        batches = {entry.name.version - 1 for entry in document.entries}
        return batches & set(range(document.first, document.last + 1))
    return set()


async def plan_blocks(store: ObjectStore, request: ReadRequest) -> Sequence[ReadPart]:
    """A part per segment: the objects, and those within commits that the index names.

    Raises the error of a commit or index that is damaged, for what it refers to is unknown, and
    what the store raises.
    """
    checkpoint = await read_checkpoint(store)
    for error in checkpoint.damaged.values():
        raise error
    started = {}
    if request.asks_for("time"):
        summaries = await summarize_batches(store, checkpoint)
        started = {summary.batch: summary.started_ms for summary in summaries}
    batches = _indexed_batches(checkpoint)
    segments = {SEGMENTS + name: size for name, size in sorted(checkpoint.segments.items())}
    # What a roll-up names has moved into an object.
    segments |= {name: size for name, size in checkpoint.in_commits.items() if name in batches}
    return [
        Listing(
            partial(_block_rows, name, size, batches.get(name, {}), started),
            size,
            may_vanish=True,
        )
        for name, size in segments.items()
    ]


async def _block_rows(
    segment: str,
    size: int,
    batches: _Batches,
    started: Mapping[int, int | None],
    store: ObjectStore,
) -> list[Row]:
    """A row per block of a segment; `started` are the times of batches in milliseconds."""
    footer = await read_footer_at(store, segment, size)
    return [_block_row(entry, segment, batches.get(entry.offset), started) for entry in footer]


def _block_row(
    entry: FooterEntry, segment: str, batch: int | None, started: Mapping[int, int | None]
) -> Row:
    return {
        "object": segment,
        "offset": entry.offset,
        "operator": entry.name.operator_id,
        "subtask": entry.name.partition,
        "kind": "spark-changelog",
        "first_seqno": entry.name.version,
        "end_seqno": entry.name.version + 1,
        "changes": 1,
        "codec": "none",
        "raw_bytes": entry.length - HEADER.size,
        "stored_bytes": entry.length,
        "referenced_by": [] if batch is None else [batch],
        "time": None if batch is None else _microseconds(started.get(batch)),
        "id": entry.name.id,
        "piece": entry.piece,
        "pieces": entry.pieces,
    }
