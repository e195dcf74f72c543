"""What the commands write into a checkpoint: changelogs as files of their own, and the index again.

Invariants: a changelog is written only where there is no file; one that is there must hold the same
bytes. Nothing of the log is removed before every live changelog is a file. What can be read of the
index stays as it is; an entry is written only if the segments' own footers or another part of the
index have it; a committed id is never replaced by another. Repeating it does no harm.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from tidelog.concurrency import Progress, gather_bounded, no_progress
from tidelog.errors import ConditionalPutError, ObjectExistsError, RestoreError
from tidelog.spark.checkpoint.checkpoint import (
    COMMITS,
    INDEX,
    LOG,
    STATE,
    Entries,
    QueryCheckpoint,
    by_segment,
    sidecar,
)
from tidelog.spark.checkpoint.commits import NamedId, with_index
from tidelog.spark.checkpoint.liveness import Assessment
from tidelog.spark.checkpoint.locate import ChangelogReader, Located
from tidelog.spark.format.index import IndexDocument, IndexEntry, write_index
from tidelog.spark.format.names import BATCHES_PER_ROLL_UP, roll_up_name
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
    checked, and nothing is written. Raises RestoreError when something that a retained batch needs
    is nowhere, CorruptObjectError for damage to a commit, a changelog, or, with `remove_log`, any
    segment, ObjectExistsError when a file of that name holds something else. Files written before
    an error stay: they are right.
    """
    _refuse_damage(checkpoint, located, remove_log=remove_log)
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
    commits = {f"{COMMITS}{batch}" for batch in checkpoint.commits}
    for name, error in checkpoint.damaged.items():
        if name.startswith(COMMITS) and name not in commits:
            raise error
    if remove_log and located.footers is not None:
        # To remove the log one must know that nothing in it is needed.
        for error in located.footers.damaged.values():
            raise error
    if lost := located.assessment.lost:
        raise RestoreError(
            f"{lost[0].what}, needed since batch {lost[0].batch}",
            expected="it in the log, or as a file, or a snapshot instead of it",
            found=f"nothing; {len(lost)} such changelogs are missing",
            action="bring the missing objects back from a backup, or start the query from an "
            "earlier batch; `tidelog spark doctor` lists them",
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
            await _replace(store, checkpoint, f"{COMMITS}{commit.batch}", commit.spark)
        for name in names:
            await store.delete(name)
    return len(commits), len(names)


async def _replace(store: ObjectStore, checkpoint: QueryCheckpoint, name: str, data: bytes) -> None:
    """Overwrite an object; Hadoop's checksum of the old one must not survive it."""
    await _remove_sidecar(store, checkpoint, name)
    await store.put(name, data)


async def _remove_sidecar(store: ObjectStore, checkpoint: QueryCheckpoint, name: str) -> None:
    if sidecar(name) in checkpoint.objects:
        await store.delete(sidecar(name))


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """What of the index is missing or damaged, and what belongs there."""

    lines: dict[int, IndexDocument]
    """Index lines to write, by batch."""
    roll_ups: dict[int, IndexDocument]
    """Roll-ups to write, by first batch."""
    useless: tuple[str, ...]
    """Damaged roll-ups of which nothing is needed any more: to delete."""

    @property
    def names(self) -> set[str]:
        """The objects that are written or deleted."""
        lines = {f"{COMMITS}{batch}" for batch in self.lines}
        return lines | {INDEX + roll_up_name(first) for first in self.roll_ups} | {*self.useless}


def plan_rebuild(checkpoint: QueryCheckpoint, located: Located) -> RebuildPlan:
    """Decide what to write; `located` is with all footers. Raises nothing."""
    lines = _lines(checkpoint, located.known)
    roll_ups = _roll_ups(checkpoint, located.assessment)
    written = {INDEX + roll_up_name(first) for first in roll_ups}
    damaged = {name for name in checkpoint.damaged if name.startswith(INDEX)}
    return RebuildPlan(lines, roll_ups, tuple(sorted(damaged - written)))


def _lines(checkpoint: QueryCheckpoint, known: Entries) -> dict[int, IndexDocument]:
    by_batch: dict[int, list[IndexEntry]] = defaultdict(list)
    for entry in known.values():
        if all(piece.segment in checkpoint.segments for piece in entry.pieces):
            by_batch[entry.name.version - 1].append(entry)
    lines = {}
    for batch, commit in checkpoint.commits.items():
        if commit.index is None:
            named = [
                entry
                for name, entry in ((each.name, each) for each in by_batch[batch])
                if NamedId(name.operator, name.partition, name.id) in commit.named
            ]
            if named or commit.damage is not None:
                lines[batch] = _document(checkpoint, batch, batch, named)
    return lines


def _roll_ups(checkpoint: QueryCheckpoint, assessment: Assessment) -> dict[int, IndexDocument]:
    live_by_window: dict[int, list[IndexEntry]] = defaultdict(list)
    for entry in assessment.live:
        batch = entry.name.version - 1
        live_by_window[batch - batch % BATCHES_PER_ROLL_UP].append(entry)
    roll_ups = {}
    for first, entries in sorted(live_by_window.items()):
        last = first + BATCHES_PER_ROLL_UP - 1
        complete = checkpoint.newest is not None and last <= checkpoint.newest
        if complete and first not in checkpoint.roll_ups:
            roll_ups[first] = _document(checkpoint, first, last, entries)
    return roll_ups


async def write_index_again(
    store: ObjectStore, checkpoint: QueryCheckpoint, plan: RebuildPlan
) -> None:
    """Write what a plan says: roll-ups first, as the plug-in does; raises what the store raises."""
    for first, document in plan.roll_ups.items():
        name = INDEX + roll_up_name(first)
        await _replace(store, checkpoint, name, write_index(document).encode())
    for batch, document in plan.lines.items():
        line = with_index(checkpoint.commits[batch], document)
        await _replace(store, checkpoint, f"{COMMITS}{batch}", line)
    for name in plan.useless:
        await store.delete(name)


def _document(
    checkpoint: QueryCheckpoint, first: int, last: int, entries: Iterable[IndexEntry]
) -> IndexDocument:
    kept = tuple(entries)
    names = {piece.segment for entry in kept for piece in entry.pieces}
    return IndexDocument(first, last, {name: checkpoint.segments[name] for name in names}, kept)
