"""What a checkpoint holds, in figures: per batch and in total.

Invariant: a pure function of what was read, but for the start times, which are read here.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import partial

from tidelog.concurrency import gather_bounded
from tidelog.errors import ObjectNotFoundError
from tidelog.spark.checkpoint.checkpoint import OFFSETS, Checkpoint, indexed
from tidelog.spark.checkpoint.commits import read_offsets
from tidelog.spark.checkpoint.liveness import Assessment
from tidelog.spark.format.index import IndexEntry
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
    """Partitions of all operators together."""
    changelogs: int
    """Changelogs in the log."""
    files: int
    """Changelogs that are files of their own."""
    log_bytes: int
    segments: int
    """Segments that hold something of the batch."""
    snapshots: int


@dataclass(frozen=True, slots=True)
class LogSummary:
    """All of the log; sizes in bytes."""

    segments: int
    bytes: int
    live_changelogs: int
    """Changelogs that a retained batch needs."""
    live_bytes: int
    expired_changelogs: int
    """Changelogs that no retained batch needs; Spark's next maintenance deletes them."""
    orphan_segments: int
    """Segments that no index names."""
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
    planned = checkpoint.commits.keys() & set(checkpoint.offsets)
    started = await gather_bounded(sorted(planned), partial(_started_ms, store))
    return [
        BatchSummary(
            batch=batch,
            format=commit.format,
            started_ms=started.get(batch),
            operators=len({named.operator for named in commit.ids}),
            partitions=len({(named.operator, named.partition) for named in commit.ids}),
            changelogs=len(entries[batch]),
            files=files[batch],
            log_bytes=sum(map(stored_bytes, entries[batch])),
            segments=len({p.segment for entry in entries[batch] for p in entry.pieces}),
            snapshots=snapshots[batch],
        )
        for batch, commit in checkpoint.commits.items()
    ]


def stored_bytes(entry: IndexEntry) -> int:
    """What a changelog takes in segments."""
    return sum(piece.length for piece in entry.pieces)


async def _started_ms(store: ObjectStore, batch: int) -> int | None:
    try:
        offsets = read_offsets(await store.get(f"{OFFSETS}{batch}"))
    except (ObjectNotFoundError, ValueError):
        return None
    started = offsets.metadata.get("batchTimestampMs")
    return started if isinstance(started, int) else None
