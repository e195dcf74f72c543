"""What a checkpoint holds in figures, and what is wrong with it.

Invariant: nothing is written; whatever is doubtful or damaged is named with its object.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from tidelog.concurrency import Progress, gather_bounded, no_progress
from tidelog.errors import ObjectNotFoundError, TidelogError
from tidelog.options.units import plural
from tidelog.spark.checkpoint.checkpoint import (
    COMMITS,
    OFFSETS,
    UNREADABLE,
    Entries,
    QueryCheckpoint,
    by_segment,
    read_checkpoint,
    segment_object,
)
from tidelog.spark.checkpoint.commits import read_offsets
from tidelog.spark.checkpoint.liveness import Assessment
from tidelog.spark.checkpoint.locate import ChangelogReader, Located, locate
from tidelog.spark.checkpoint.restart import Restart, read_restart
from tidelog.spark.format.damage import BRING_BACK, INDEX_LOST
from tidelog.spark.format.index import IndexEntry, segments_of
from tidelog.spark.plugin.check import CheckResult, fail, ok, warn
from tidelog.spark.plugin.settings import FORMAT, PROVIDER, PROVIDER_CLASS
from tidelog.storage.port import ObjectStore

_SHOWN: Final = 5


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


def summarize_log(checkpoint: QueryCheckpoint, assessment: Assessment) -> LogSummary:
    """Totals of a checkpoint's log."""
    orphans = _unnamed_segments(checkpoint, checkpoint.indexed)
    return LogSummary(
        segments=len(checkpoint.segments),
        bytes=sum(checkpoint.segments.values()),
        live_changelogs=len(assessment.live),
        live_bytes=sum(map(stored_bytes, assessment.live)),
        expired_changelogs=assessment.expired,
        orphan_segments=len(orphans),
        orphan_bytes=sum(map(checkpoint.segments.__getitem__, orphans)),
        roll_ups=len(checkpoint.roll_ups),
    )


def _unnamed_segments(checkpoint: QueryCheckpoint, entries: Entries) -> list[str]:
    """The segments in which none of these changelogs lies."""
    used = segments_of(entries.values())
    return [name for name in checkpoint.segments if name not in used]


async def summarize_batches(store: ObjectStore, checkpoint: QueryCheckpoint) -> list[BatchSummary]:
    """Figures of every retained batch, oldest first; raises what the store raises."""
    entries: dict[int, list[IndexEntry]] = defaultdict(list)
    for name, entry in checkpoint.indexed.items():
        entries[name.version - 1].append(entry)
    files = Counter(name.version - 1 for name in checkpoint.changelogs)
    snapshots = Counter(snapshot.version - 1 for snapshot in checkpoint.snapshots)
    planned = checkpoint.commits.keys() & set(checkpoint.offsets)
    started = await gather_bounded(sorted(planned), partial(_started_ms, store))
    summaries: list[BatchSummary] = []
    for batch, commit in checkpoint.commits.items():
        summary = BatchSummary(
            batch=batch,
            format=commit.format,
            started_ms=started.get(batch),
            operators=len({id_.operator for id_ in commit.ids}),
            partitions=len(commit.partitions),
            changelogs=len(entries[batch]),
            files=files[batch],
            log_bytes=sum(map(stored_bytes, entries[batch])),
            segments=len(segments_of(entries[batch])),
            snapshots=snapshots[batch],
        )
        summaries.append(summary)
    return summaries


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


async def check_checkpoint(
    store: ObjectStore, *, deep: bool = False, progress: Progress = no_progress
) -> list[CheckResult]:
    """Check the checkpoint at a store's root; `deep` reads every live changelog.

    Raises what the store raises; damage is a result.
    """
    checkpoint = await read_checkpoint(store, progress)
    if checkpoint.is_empty:
        return [ok("checkpoint", "none yet: a query can start here")]
    located = await locate(store, checkpoint, progress=progress)
    results = await check_located(store, checkpoint, located)
    if deep:
        results += await _contents(store, located.assessment, progress)
    return results


async def check_located(
    store: ObjectStore, checkpoint: QueryCheckpoint, located: Located
) -> list[CheckResult]:
    """Check a checkpoint that was read, without the contents of its changelogs."""
    restart = await read_restart(store, checkpoint, located)
    return [
        _origin(checkpoint, located.assessment),
        *_restart(restart),
        *await _recorded_settings(store, checkpoint),
        *_commit_format(checkpoint),
        *_damage(checkpoint, located),
        *_lost(located.assessment),
        *_orphans(checkpoint, located),
    ]


def _origin(checkpoint: QueryCheckpoint, assessment: Assessment) -> CheckResult:
    retained = plural(len(checkpoint.commits), "batch", "batches")
    if checkpoint.commits:
        retained += f", {min(checkpoint.commits)} to {checkpoint.newest}"
    writer = "with the plug-in's log" if [*checkpoint.documents()] else "of Spark alone"
    summary = f"{writer}; {retained}; {plural(len(assessment.live), 'live changelog')} in the log"
    return ok("checkpoint", summary)


def _restart(restart: Restart) -> Iterator[CheckResult]:
    for obstacle in restart.obstacles[:_SHOWN]:
        yield fail("restart", str(obstacle), obstacle.action)
    if len(restart.obstacles) > _SHOWN:
        yield fail("restart", f"{len(restart.obstacles) - _SHOWN} more", BRING_BACK)
    if not restart.obstacles:
        state = "without state" if restart.commit is None else f"after batch {restart.commit}"
        yield ok("restart", f"nothing keeps Spark from going on {state}")


async def _recorded_settings(store: ObjectStore, checkpoint: QueryCheckpoint) -> list[CheckResult]:
    """A restarted query keeps the provider its checkpoint was started with."""
    if not checkpoint.offsets:
        return []
    name = f"{OFFSETS}{checkpoint.offsets[-1]}"
    try:
        conf = read_offsets(await store.get(name)).metadata.get("conf") or {}
    except ObjectNotFoundError:
        return []  # purged since the listing
    except ValueError as cause:
        return [fail("offsets", f"object {name} is damaged: {cause}", BRING_BACK)]
    provider = conf.get(PROVIDER, PROVIDER_CLASS)
    if provider == PROVIDER_CLASS:
        return [ok("stored-provider", provider)]
    action = f"start a new checkpoint with {PROVIDER}={PROVIDER_CLASS}"
    return [fail("stored-provider", f"{provider}, fixed for this checkpoint", action)]


def _commit_format(checkpoint: QueryCheckpoint) -> list[CheckResult]:
    if checkpoint.newest is None:
        return []
    newest = checkpoint.commits[checkpoint.newest].format
    if newest >= 2:
        return [ok("stored-format", f"checkpoint format {newest}")]
    actual = f"checkpoint format {newest}, which a checkpoint keeps; the plug-in needs 2"
    return [fail("stored-format", actual, f"start the query anew: another directory, {FORMAT}=2")]


def _damage(checkpoint: QueryCheckpoint, located: Located) -> Iterator[CheckResult]:
    commits = {f"{COMMITS}{batch}" for batch in checkpoint.damaged_commits}
    for name, error in sorted(checkpoint.damaged.items()):
        action = error.action if name in commits else INDEX_LOST
        yield fail("damage", _described(error), action)
    for _, error in sorted((located.damaged_footers or {}).items()):
        yield fail("damage", _described(error), BRING_BACK)
    lengths: dict[str, int] = {}
    for document in checkpoint.documents():
        lengths.update(document.segments)
    for segment in sorted(located.assessment.live_segments() & lengths.keys()):
        size = checkpoint.segment_bytes[segment]
        if size != lengths[segment]:
            actual = (
                f"segment {segment_object(segment)} has {size} bytes, "
                f"its index says {lengths[segment]}"
            )
            yield fail("damage", actual, BRING_BACK)
    read_footers = located.damaged_footers is not None
    if read_footers and not (located.assessment.lost or checkpoint.damaged):
        yield warn("index", "something needed stands only in the segments' footers", INDEX_LOST)


def _lost(assessment: Assessment) -> Iterator[CheckResult]:
    for lost in assessment.lost[:_SHOWN]:
        yield fail("lost", f"{lost.what}, of batch {lost.batch}, is nowhere", BRING_BACK)
    if len(assessment.lost) > _SHOWN:
        yield fail("lost", plural(len(assessment.lost) - _SHOWN, "changelog") + " more", BRING_BACK)
    if not assessment.lost:
        yield ok("complete", "every changelog that a retained batch needs is there")


def _orphans(checkpoint: QueryCheckpoint, located: Located) -> Iterator[CheckResult]:
    if orphans := _unnamed_segments(checkpoint, located.entries):
        size = sum(map(checkpoint.segments.__getitem__, orphans))
        actual = f"{plural(len(orphans), 'segment')} of {size:,} bytes that no index names"
        yield warn("orphans", actual, "nothing: the query's next start deletes garbage")


async def _contents(
    store: ObjectStore, assessment: Assessment, progress: Progress
) -> list[CheckResult]:
    reader = ChangelogReader(store)

    async def check(entry: IndexEntry) -> TidelogError | None:
        try:
            await reader.read(entry)
        except UNREADABLE as error:
            return error
        return None

    try:
        read = await gather_bounded(by_segment(assessment.live), check, progress)
    finally:
        await reader.close()
    errors = filter(None, read.values())
    failures = [fail("contents", _described(error), BRING_BACK) for error in errors]
    return failures or [
        ok("contents", f"{plural(len(read), 'changelog')} read, every checksum right")
    ]


def _described(error: TidelogError) -> str:
    return f"{error.what}: expected {error.expected}, found {error.found}"
