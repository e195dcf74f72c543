"""Checks of a stored checkpoint: whose it is, what it says of its settings, what is damaged.

Invariant: nothing is written; whatever is doubtful or damaged is named with its object.
"""

from collections.abc import Iterator
from typing import Final

from tidelog.concurrency import Progress, gather_bounded, no_progress
from tidelog.errors import ObjectNotFoundError, TidelogError
from tidelog.spark.checkpoint.checkpoint import INDEX, OFFSETS, SEGMENTS, Checkpoint, by_segment
from tidelog.spark.checkpoint.commits import read_offsets
from tidelog.spark.checkpoint.contents import ChangelogReader
from tidelog.spark.checkpoint.liveness import Assessment
from tidelog.spark.checkpoint.locate import Located, locate
from tidelog.spark.checkpoint.reading import UNREADABLE, read_checkpoint
from tidelog.spark.format.index import IndexEntry
from tidelog.spark.plugin.check_result import CheckResult, fail, ok, warn
from tidelog.spark.plugin.settings import FORMAT, PROVIDER, PROVIDER_CLASS
from tidelog.storage.port import ObjectStore

_REBUILD: Final = "stop the query and run `tidelog spark rebuild-index`"
_BACKUP: Final = "bring it back from a backup, or start the query from an earlier batch"
_SHOWN: Final = 5


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
    store: ObjectStore, checkpoint: Checkpoint, located: Located
) -> list[CheckResult]:
    """Check a checkpoint that was read, without the contents of its changelogs."""
    return [
        _origin(checkpoint, located.assessment),
        *await _recorded_settings(store, checkpoint),
        *_commit_format(checkpoint),
        *_damage(checkpoint, located),
        *_lost(located.assessment),
        *_orphans(checkpoint, located),
    ]


def _origin(checkpoint: Checkpoint, assessment: Assessment) -> CheckResult:
    retained = f"{len(checkpoint.commits)} batches"
    if checkpoint.commits:
        retained += f", {min(checkpoint.commits)} to {checkpoint.newest}"
    whose = "with the plug-in's log" if checkpoint.segments else "of Spark alone"
    found = f"{whose}; {retained}; {len(assessment.live)} live changelogs in the log"
    return ok("checkpoint", found)


async def _recorded_settings(store: ObjectStore, checkpoint: Checkpoint) -> list[CheckResult]:
    """A restarted query keeps the provider its checkpoint was started with."""
    if not checkpoint.offsets:
        return []
    name = f"{OFFSETS}{checkpoint.offsets[-1]}"
    try:
        conf = read_offsets(await store.get(name)).conf
    except ObjectNotFoundError:
        return []  # purged since the listing
    except ValueError as cause:
        return [fail("offsets", f"object {name} is damaged: {cause}", _BACKUP)]
    provider = conf.get(PROVIDER, PROVIDER_CLASS)
    if provider == PROVIDER_CLASS:
        return [ok("stored-provider", provider)]
    action = f"start a new checkpoint with {PROVIDER}={PROVIDER_CLASS}"
    return [fail("stored-provider", f"{provider}, fixed for this checkpoint", action)]


def _commit_format(checkpoint: Checkpoint) -> list[CheckResult]:
    if checkpoint.newest is None:
        return []
    newest = checkpoint.commits[checkpoint.newest].format
    if newest >= 2:
        return [ok("stored-format", f"checkpoint format {newest}")]
    found = f"checkpoint format {newest}, which a checkpoint keeps; the plug-in needs 2"
    return [fail("stored-format", found, f"start the query anew: another directory, {FORMAT}=2")]


def _damage(checkpoint: Checkpoint, located: Located) -> Iterator[CheckResult]:
    for name, error in sorted(checkpoint.damaged.items()):
        is_index = name.startswith(INDEX) or _batch(name) in checkpoint.commits
        yield fail("damage", _said(error), _REBUILD if is_index else error.action)
    if located.footers is not None:
        for _, error in sorted(located.footers.damaged.items()):
            yield fail("damage", _said(error), _BACKUP)
    said = {name: n for document in checkpoint.documents() for name, n in document.segments.items()}
    for segment in sorted(located.assessment.live_segments() & said.keys()):
        size = checkpoint.segments[segment]
        if size != said[segment]:
            found = f"object {SEGMENTS}{segment} has {size} bytes, its index says {said[segment]}"
            yield fail("damage", found, _BACKUP)
    if located.footers is not None and not (located.assessment.lost or checkpoint.damaged):
        yield warn("index", "something needed stands only in the segments' footers", _REBUILD)


def _lost(assessment: Assessment) -> Iterator[CheckResult]:
    for lost in assessment.lost[:_SHOWN]:
        yield fail("lost", f"{lost.what}, of batch {lost.batch}, is nowhere", _BACKUP)
    if len(assessment.lost) > _SHOWN:
        yield fail("lost", f"{len(assessment.lost) - _SHOWN} more changelogs", _BACKUP)
    if not assessment.lost:
        yield ok("complete", "every changelog that a retained batch needs is there")


def _orphans(checkpoint: Checkpoint, located: Located) -> Iterator[CheckResult]:
    named = {piece.segment for entry in located.known.values() for piece in entry.pieces}
    orphans = [name for name in checkpoint.segments if name not in named]
    if orphans:
        size = sum(checkpoint.segments[name] for name in orphans)
        found = f"{len(orphans)} segments of {size} bytes that no index names"
        action = (
            f"the query's next start sweeps garbage; if parts of the index are lost, {_REBUILD}"
        )
        yield warn("orphans", found, action)


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
    errors = [error for error in read.values() if error is not None]
    failures = [fail("contents", _said(error), _BACKUP) for error in errors]
    return failures or [ok("contents", f"{len(read)} changelogs read, every checksum right")]


def _said(error: TidelogError) -> str:
    return f"{error.what}: expected {error.expected}, found {error.found}"


def _batch(name: str) -> int | None:
    leaf = name.rpartition("/")[2]
    return int(leaf) if leaf.isdecimal() else None
