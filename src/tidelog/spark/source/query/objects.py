"""View `objects` of a query: everything in its checkpoint, and which batches need it.

Invariants: an orphan is a segment that no index names; of Spark's own objects, which Spark alone
removes, and while a part of the index cannot be read, it is not said.
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
    Checkpoint,
    is_sidecar,
    read_checkpoint,
)
from tidelog.spark.source.frames import Row
from tidelog.spark.source.parts import Listing, Part, Request
from tidelog.storage.port import ObjectInfo, ObjectStore

_KINDS: Final = {
    SEGMENTS: "segment",
    INDEX: "index",
    COMMITS: "commit",
    OFFSETS: "offsets",
    STATE: "state",
}
_VERSIONED: Final = re.compile(r"(\d+)(?:_[^/]+)?\.(zip|changelog)")


async def plan(store: ObjectStore, request: Request) -> Sequence[Part]:
    """One part with a row per object, by name."""
    return [Listing(_rows)]


async def _rows(store: ObjectStore) -> list[Row]:
    # The index before the listing: what it names was written before it.
    checkpoint = await read_checkpoint(store)
    infos = [info async for info in store.list("")]
    users = segment_users(checkpoint)
    return [_row(checkpoint, users, info) for info in infos]


def segment_users(checkpoint: Checkpoint) -> Mapping[str, Sequence[int]]:
    """The batches that have changelogs in a segment, ascending, by the segment's name."""
    users: dict[str, set[int]] = defaultdict(set)
    for name, entry in checkpoint.indexed.items():
        for piece in entry.pieces:
            users[SEGMENTS + piece.segment].add(name.version - 1)
    return {segment: sorted(batches) for segment, batches in users.items()}


def _row(checkpoint: Checkpoint, users: Mapping[str, Sequence[int]], info: ObjectInfo) -> Row:
    kind = kind_of(info.name)
    orphan = None
    if kind == "segment" and (info.name in users or not checkpoint.damaged):
        orphan = info.name not in users
    return {
        "name": info.name,
        "kind": kind,
        "bytes": info.size,
        "referenced_by": _batches(checkpoint, users, info.name, kind),
        "orphan": orphan,
    }


def kind_of(name: str) -> str:
    """What an object is by its name."""
    if is_sidecar(name):
        return "checksum"
    kind = next((kind for prefix, kind in _KINDS.items() if name.startswith(prefix)), "other")
    match = _VERSIONED.fullmatch(name.rpartition("/")[2]) if kind == "state" else None
    return {"zip": "snapshot", "changelog": "changelog"}[match[2]] if match else kind


def _batches(
    checkpoint: Checkpoint, users: Mapping[str, Sequence[int]], name: str, kind: str
) -> Sequence[int]:
    """The committed batches that an object is of."""
    leaf = name.rpartition("/")[2]
    if kind == "segment":
        return users.get(name, ())
    if kind in ("commit", "offsets") and leaf.isdecimal():
        batches = range(int(leaf), int(leaf) + 1)
    elif kind in ("snapshot", "changelog"):
        version = int(leaf.partition(".")[0].partition("_")[0])
        batches = range(version - 1, version)
    elif kind == "index" and (document := checkpoint.roll_ups.get(_first(leaf))) is not None:
        batches = range(document.first, document.last + 1)
        return sorted({e.name.version - 1 for e in document.entries} & set(batches))
    else:
        return ()
    return [batch for batch in batches if batch in checkpoint.commits]


def _first(leaf: str) -> int:
    number = leaf.removesuffix(".json")
    return int(number) if number.isdecimal() else -1
