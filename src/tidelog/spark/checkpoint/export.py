"""A checkpoint turned back into one that Spark alone can continue.

Invariants: a file is written only where there is none; one that is there must hold the same bytes;
nothing of the log is removed before every live changelog is a file. Repeating it does no harm.
"""

from dataclasses import dataclass

from tidelog.concurrency import Progress, gather_bounded, no_progress
from tidelog.errors import (
    ConditionalPutError,
    ObjectExistsError,
    ObjectNotFoundError,
    RestoreError,
)
from tidelog.spark.checkpoint.checkpoint import COMMITS, LOG, STATE, Checkpoint, by_segment, sidecar
from tidelog.spark.checkpoint.commits import with_index
from tidelog.spark.checkpoint.contents import ChangelogReader
from tidelog.spark.checkpoint.liveness import Assessment
from tidelog.spark.checkpoint.locate import Footers
from tidelog.spark.format.index import IndexEntry
from tidelog.storage.create_once import create_once
from tidelog.storage.port import ObjectStore


@dataclass(slots=True)
class ExportReport:
    """What an export did, or would do."""

    written: int = 0
    """Changelogs written as files."""
    written_bytes: int = 0
    present: int = 0
    """Changelogs that were files already, with the same content."""
    expired: int = 0
    """Changelogs in the index that no retained batch needs; they are left out."""
    stripped: int = 0
    """Commits from which the index line was taken."""
    removed: int = 0
    """Objects of the log that were removed."""


async def export_changelogs(
    store: ObjectStore,
    checkpoint: Checkpoint,
    assessment: Assessment,
    *,
    dry_run: bool = False,
    progress: Progress = no_progress,
) -> ExportReport:
    """Write every live changelog as the file Spark expects.

    With `dry_run` all of them are read and checked, and nothing is written. Raises RestoreError
    when something that a retained batch needs is nowhere, CorruptObjectError for damage to a commit
    or a changelog, ObjectExistsError when a file of that name holds something else. Files written
    before an error stay: they are right.
    """
    _refuse_damaged_commits(checkpoint)
    _refuse_lost(assessment)
    report = ExportReport(expired=assessment.expired)
    reader = ChangelogReader(store)

    async def export(entry: IndexEntry) -> None:
        content = await reader.read(entry)
        if await _write(store, checkpoint, entry, content, dry_run=dry_run):
            report.written += 1
            report.written_bytes += len(content)
        else:
            report.present += 1

    try:
        await gather_bounded(by_segment(assessment.live), export, progress)
    finally:
        await reader.close()
    return report


async def remove_log(
    store: ObjectStore, checkpoint: Checkpoint, report: ExportReport, *, dry_run: bool = False
) -> None:
    """Take the log away after `export_changelogs` has succeeded; counts into `report`.

    First the index lines go, then the index, then the segments, so that no index is left that names
    what is gone.
    """
    for commit in checkpoint.commits.values():
        if commit.index is None and commit.damage is None:
            continue
        if not dry_run:
            await replace(store, checkpoint, f"{COMMITS}{commit.batch}", with_index(commit, None))
        report.stripped += 1
    names = [info.name async for info in store.list(LOG)]
    for name in sorted(names):
        if not dry_run:
            await store.delete(name)
        report.removed += 1


async def replace(store: ObjectStore, checkpoint: Checkpoint, name: str, data: bytes) -> None:
    """Overwrite an object; Hadoop's checksum of the old one must not survive it."""
    if sidecar(name) in checkpoint.sidecars:
        await store.delete(sidecar(name))
    await store.put(name, data)


def refuse_unreadable_segments(footers: Footers | None) -> None:
    """Raise the first error of a segment that cannot say what it holds.

    To remove the log one must know that nothing in it is needed.
    """
    for error in footers.damaged.values() if footers is not None else ():
        raise error


def _refuse_damaged_commits(checkpoint: Checkpoint) -> None:
    readable = {f"{COMMITS}{batch}" for batch in checkpoint.commits}
    for name, error in checkpoint.damaged.items():
        if name.startswith(COMMITS) and name not in readable:
            raise error


def _refuse_lost(assessment: Assessment) -> None:
    """Raise RestoreError when something needed is nowhere."""
    if assessment.lost:
        first = assessment.lost[0]
        raise RestoreError(
            f"{first.what}, needed since batch {first.batch}",
            expected="it in the log, or as a file, or a snapshot instead of it",
            found=f"nothing; {len(assessment.lost)} such changelogs are missing",
            action="bring the missing objects back from a backup, or start the query from an "
            "earlier batch; `tidelog spark doctor` lists them",
            retry_safe=False,
        )


async def _write(
    store: ObjectStore,
    checkpoint: Checkpoint,
    entry: IndexEntry,
    content: bytes,
    *,
    dry_run: bool,
) -> bool:
    """Write one file unless it is there; returns whether it was missing."""
    name = STATE + entry.name.path
    if entry.name in checkpoint.changelogs:
        if await store.get(name) != content:
            raise _different(name)
        return False
    if dry_run:
        return True
    if sidecar(name) in checkpoint.sidecars:
        await store.delete(sidecar(name))
    try:
        await create_once(store, name, content)
    except ObjectExistsError as cause:
        raise _different(name) from cause
    except ConditionalPutError:
        # Not needed here: the query is stopped, and nothing else writes this name.
        await _put_if_missing(store, name, content)
    return True


async def _put_if_missing(store: ObjectStore, name: str, content: bytes) -> None:
    try:
        found = await store.get(name)
    except ObjectNotFoundError:
        await store.put(name, content)
        return
    if found != content:
        raise _different(name)


def _different(name: str) -> ObjectExistsError:
    return ObjectExistsError(
        f"file {name}",
        expected="no file, or one with the bytes of the log",
        found="other bytes",
        action="find out what wrote it, and move it away if it is not needed; "
        "nothing was overwritten",
        retry_safe=False,
    )
