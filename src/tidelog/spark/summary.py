"""What a checkpoint holds, in figures: per batch and in total.

Invariant: a pure function of what was read, but for the start times, which are read here.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import msgspec

from tidelog.errors import ObjectNotFoundError
from tidelog.spark.checkpoint import OFFSETS, Checkpoint
from tidelog.spark.entries import indexed
from tidelog.spark.format.index import IndexEntry
from tidelog.spark.liveness import Assessment
from tidelog.spark.reading import gathered
from tidelog.storage.port import ObjectStore


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """One committed batch; sizes in bytes."""

    batch: int
    format: int
    started_ms: int | None
    """When Spark planned the batch, milliseconds since 1970; None when it does not say."""
    operators: int
    partitions: int
    """Of all operators together."""
    changelogs: int
    """In the log."""
    files: int
    """Changelogs that are files of their own."""
    log_bytes: int
    segments: int
    """That hold something of it."""
    snapshots: int


@dataclass(frozen=True, slots=True)
class LogSummary:
    """All of the log; sizes in bytes."""

    segments: int
    bytes: int
    live_changelogs: int
    """That a retained batch needs."""
    live_bytes: int
    expired_changelogs: int
    """That no retained batch needs; Spark's next maintenance deletes them."""
    orphan_segments: int
    """That no index names."""
    orphan_bytes: int
    roll_ups: int


def summarize_log(checkpoint: Checkpoint, assessment: Assessment) -> LogSummary:
    """Totals of a checkpoint's log."""
    named = {p.segment for entry in indexed(checkpoint).values() for p in entry.pieces}
    orphans = [size for name, size in checkpoint.segments.items() if name not in named]
    return LogSummary(
        segments=len(checkpoint.segments),
        bytes=sum(checkpoint.segments.values()),
        live_changelogs=len(assessment.live),
        live_bytes=sum(map(stored_bytes, assessment.live)),
        expired_changelogs=assessment.expired,
        orphan_segments=len(orphans),
        orphan_bytes=sum(orphans),
        roll_ups=len(checkpoint.roll_ups),
    )


async def summarize_batches(store: ObjectStore, checkpoint: Checkpoint) -> list[BatchSummary]:
    """Figures of every retained batch, oldest first; raises what the store raises."""
    entries: dict[int, list[IndexEntry]] = defaultdict(list)
    for name, entry in indexed(checkpoint).items():
        entries[name.version - 1].append(entry)
    files = Counter(name.version - 1 for name in checkpoint.changelogs)
    snapshots = Counter(snapshot.version - 1 for snapshot in checkpoint.snapshots)
    batches = list(checkpoint.commits)
    planned = set(checkpoint.offsets)

    async def started_of(batch: int) -> int | None:
        return await _started_ms(store, batch) if batch in planned else None

    started = await gathered(started_of, batches)
    return [
        BatchSummary(
            batch=batch,
            format=commit.format,
            started_ms=started_ms,
            operators=len({named.operator for named in commit.ids}),
            partitions=len({(named.operator, named.partition) for named in commit.ids}),
            changelogs=len(entries[batch]),
            files=files[batch],
            log_bytes=sum(map(stored_bytes, entries[batch])),
            segments=len({p.segment for entry in entries[batch] for p in entry.pieces}),
            snapshots=snapshots[batch],
        )
        for (batch, commit), started_ms in zip(checkpoint.commits.items(), started, strict=True)
    ]


def stored_bytes(entry: IndexEntry) -> int:
    """What a changelog takes in segments."""
    return sum(piece.length for piece in entry.pieces)


async def _started_ms(store: ObjectStore, batch: int) -> int | None:
    try:
        line = (await store.get(f"{OFFSETS}{batch}")).split(b"\n")[1]
        started = msgspec.json.decode(line, type=dict[str, Any]).get("batchTimestampMs")
    except (ObjectNotFoundError, IndexError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return started if isinstance(started, int) else None
