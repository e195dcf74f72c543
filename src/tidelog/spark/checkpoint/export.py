"""What `tidelog spark export` writes into a checkpoint: changelogs as files of their own.

Invariants: a changelog is written only where there is no file; one that is there must hold the same
bytes. Nothing of the log is removed before every live changelog is a file. Repeating it does no
harm.
"""

from dataclasses import dataclass
from functools import partial

from tidelog.concurrency import Progress, gather_bounded, no_progress
from tidelog.errors import ConditionalPutError, ObjectExistsError, RestoreError
from tidelog.spark.checkpoint.checkpoint import (
    COMMITS,
    LOG,
    STATE,
    QueryCheckpoint,
    by_segment,
    sidecar,
)
from tidelog.spark.checkpoint.locate import ChangelogReader, Located
from tidelog.spark.checkpoint.restart import read_restart
from tidelog.spark.format.index import IndexEntry
from tidelog.storage.local import remove_empty_directories
from tidelog.storage.port import ObjectStore, create_once


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an export did, or would do."""

    written: int
    """Changelogs written as files."""
    written_bytes: int
    present: int
    """Changelogs that were files already, with the same content."""
    expired: int
    """Changelogs in the index that no retained batch needs; they are left out."""
    stripped: int
    """Commits from which the index line was taken."""
    removed: int
    """Objects of the log that were removed."""


async def export(
    store: ObjectStore,
    checkpoint: QueryCheckpoint,
    located: Located,
    *,
    remove_log: bool = False,
    dry_run: bool = False,
    progress: Progress = no_progress,
) -> ExportReport:
    """Write every live changelog as the file Spark expects; `located` is with all footers.

    With `remove_log` the log is taken away afterwards. With `dry_run` all changelogs are read and
    checked, and nothing is written. Raises RestoreError when something that a retained batch or a
    restart needs is nowhere, CorruptObjectError for damage to a commit, a changelog, or, with
    `remove_log`, any segment, ObjectExistsError when a file of that name holds something else.
    Files written before an error stay: they are right.
    """
    _refuse_damage(checkpoint, located, remove_log=remove_log)
    restart = await read_restart(store, checkpoint, located)
    for obstacle in restart.obstacles:
        raise obstacle.error()
    reader = ChangelogReader(store)
    write = partial(_write, store, checkpoint, reader, dry_run)
    try:
        done = await gather_bounded(by_segment(located.assessment.live), write, progress)
    finally:
        await reader.close()
    written = [size for size in done.values() if size is not None]
    stripped = removed = 0
    if remove_log:
        stripped, removed = await _remove_log(store, checkpoint, dry_run=dry_run)
    return ExportReport(
        written=len(written),
        written_bytes=sum(written),
        present=len(done) - len(written),
        expired=located.assessment.expired,
        stripped=stripped,
        removed=removed,
    )


def _refuse_damage(checkpoint: QueryCheckpoint, located: Located, *, remove_log: bool) -> None:
    for error in checkpoint.damaged_commits.values():
        raise error
    if remove_log and located.damaged_footers:
        # To remove the log one must know that nothing in it is needed.
        raise next(iter(located.damaged_footers.values()))
    if lost := located.assessment.lost:
        raise RestoreError(
            f"{lost[0].what}, needed since batch {lost[0].batch}",
            expected="it in the log, or as a file, or a snapshot instead of it",
            found=f"nothing; {len(lost)} such changelogs are missing",
            action="bring the missing objects back from a backup, or start the query from an "
            "earlier batch; `tidelog spark check` lists them",
            retry_safe=False,
        )


async def _write(
    store: ObjectStore,
    checkpoint: QueryCheckpoint,
    reader: ChangelogReader,
    dry_run: bool,
    entry: IndexEntry,
) -> int | None:
    """Write one file unless it is there; returns how many bytes were missing."""
    name, content = STATE + entry.name.path, await reader.read(entry)
    if entry.name in checkpoint.changelogs:
        if await store.get(name) != content:
            raise _different(name)
        return None
    if not dry_run:
        await _remove_sidecar(store, checkpoint, name)
        try:
            await create_once(store, name, content)
        except ObjectExistsError as cause:
            raise _different(name) from cause
        except ConditionalPutError:
            # Not needed here: the query is stopped, and nothing else writes this name.
            await store.put(name, content)
    return len(content)


def _different(name: str) -> ObjectExistsError:
    return ObjectExistsError(
        f"file {name}",
        expected="no file, or one with the bytes of the log",
        found="other bytes",
        action="find out what wrote it, and move it away if it is not needed; "
        "nothing was overwritten",
        retry_safe=False,
    )


async def _remove_log(
    store: ObjectStore, checkpoint: QueryCheckpoint, *, dry_run: bool
) -> tuple[int, int]:
    """First the index lines go, then the index, then the segments, so that no index is left that
    names what is gone; returns how many commits and objects.
    """
    commits = [c for c in checkpoint.commits.values() if c.index or c.damage]
    names = sorted([info.name async for info in store.list(LOG)])
    if not dry_run:
        for commit in commits:
            name = f"{COMMITS}{commit.batch}"
            # Hadoop's checksum of the old object must not survive it.
            await _remove_sidecar(store, checkpoint, name)
            await store.put(name, commit.spark)
        for name in names:
            await store.delete(name)
        remove_empty_directories(store.url, LOG.rstrip("/"))
    return len(commits), len(names)


async def _remove_sidecar(store: ObjectStore, checkpoint: QueryCheckpoint, name: str) -> None:
    if sidecar(name) in checkpoint.objects:
        await store.delete(sidecar(name))
