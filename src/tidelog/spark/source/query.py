"""Views `checkpoints` and `objects` of a Spark query with the plug-in: what its checkpoint holds.

A slot is a batch here, a subtask a partition. Invariants: a commit or an index that cannot be read
is said in `error`, and hides no other batch. An orphan is a segment that no index names; of Spark's
own objects, which Spark alone removes, and while a part of the index cannot be read, it is null.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

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
        "created": None if summary.started_ms is None else summary.started_ms * 1000,
        "operators": summary.operators,
        "subtasks": summary.partitions,
        "manifest_bytes": checkpoint.commits[summary.batch].size,
        "log_bytes": summary.log_bytes,
        "error": None if error is None else str(error),
    }


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
    batches: dict[str, set[int]] = defaultdict(set)
    for name, entry in checkpoint.indexed.items():
        for piece in entry.pieces:
            batches[segment_object(piece.segment)].add(name.version - 1)
    return [_object_row(checkpoint, batches, info) async for info in store.list("")]


def _object_row(
    checkpoint: QueryCheckpoint, batches: Mapping[str, set[int]], info: ObjectInfo
) -> Row:
    """`batches` are those that the index names for each segment."""
    kind, orphan = kind_of(info.name), None
    if kind == "segment":
        used_by = batches.get(info.name, set())
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
