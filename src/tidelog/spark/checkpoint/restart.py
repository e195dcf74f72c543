"""What a restarted query begins with, and what would keep Spark from it.

Invariants: as Spark 4.3 does it; a query that goes on meanwhile shows that nothing keeps it; what
is damaged is named with its object. Spark reads its own `metadata`, the newest offsets and those
before them, the newest commit, and the state of the versions that this commit names.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tidelog.checkpoint.finding import UNREADABLE
from tidelog.concurrency import gather_bounded
from tidelog.errors import ObjectNotFoundError, RestoreError, TidelogError
from tidelog.spark.checkpoint.checkpoint import (
    COMMITS,
    METADATA,
    OFFSETS,
    SOURCES,
    STATE,
    Homes,
    QueryCheckpoint,
    homes_of,
    key_of,
    listed_batches,
)
from tidelog.spark.checkpoint.commits import NamedId, Offsets, read_offsets, read_query_id
from tidelog.spark.checkpoint.loading import Loading, Version, lineage_of
from tidelog.spark.checkpoint.locate import ChangelogReader, Located
from tidelog.spark.format.changelog import UnreadableCodecError, read_changelog
from tidelog.spark.format.damage import BRING_BACK
from tidelog.spark.format.names import ChangelogName
from tidelog.storage.port import ObjectStore

_NOTHING: Final = "no such object"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Something that a restarted query does not get past."""

    where: str
    """The object, or a version of a state store."""
    expected: str
    found: str
    action: str
    batch: int | None = None
    """The batch that cannot be restarted from because of it; None: every one."""

    def __str__(self) -> str:
        return f"{self.where}: expected {self.expected}, found {self.found}"

    def error(self) -> RestoreError:
        """The error of what cannot do without a restart."""
        return RestoreError(
            f"{self.where}, which a restarted query needs",
            expected=self.expected,
            found=self.found,
            action=self.action,
            retry_safe=False,
        )


@dataclass(frozen=True, slots=True)
class Restart:
    """How a restarted query would begin."""

    commit: int | None
    """The batch whose state it would begin with; None: without state."""
    obstacles: tuple[Obstacle, ...]


async def read_restart(
    store: ObjectStore, checkpoint: QueryCheckpoint, located: Located | None
) -> Restart:
    """Follow what Spark reads of a checkpoint when the query is started again.

    Without `located` the state is left out: the caller tries it. Raises what the store raises.
    """
    commit = max(checkpoint.committed, default=None)
    obstacles = [*_sequence(checkpoint), *await _documents(store, checkpoint)]
    error = checkpoint.damaged_commits.get(commit) if commit is not None else None
    if error is not None:
        obstacles.append(_of_error(f"{COMMITS}{commit}", error, commit))
    if located is not None and commit in checkpoint.commits:
        obstacles += await _state(store, checkpoint, located, commit)
    if obstacles and await _goes_on(store, checkpoint):
        obstacles = []
    return Restart(commit, tuple(obstacles))


async def _goes_on(store: ObjectStore, checkpoint: QueryCheckpoint) -> bool:
    """Whether the query has planned or committed a batch since the checkpoint was read."""
    commits, offsets = [await listed_batches(store, folder) for folder in (COMMITS, OFFSETS)]
    return (max(commits, default=None), max(offsets, default=None)) != (
        max(checkpoint.committed, default=None),
        max(checkpoint.offsets, default=None),
    )


def _sequence(checkpoint: QueryCheckpoint) -> Iterator[Obstacle]:
    """What is wrong with the numbers of offsets and commits."""
    commit, offsets = max(checkpoint.committed, default=None), checkpoint.offsets
    if not offsets:
        if commit is not None or checkpoint.state_files:
            name = OFFSETS if commit is None else f"{OFFSETS}{commit}"
            action = f"{BRING_BACK}; a new query needs an empty directory"
            yield Obstacle(name, "the offsets of the newest batch", _NOTHING, action, commit)
        return
    newest = offsets[-1]
    if newest > 0 and newest - 1 not in offsets:
        name, expected = f"{OFFSETS}{newest - 1}", "the offsets of the batch before the newest"
        yield Obstacle(name, expected, _NOTHING, BRING_BACK, newest)
    if commit is not None and commit > newest:
        again = f"delete {COMMITS}{commit}: batch {commit} then runs again"
        action = f"bring it back from a backup, or {again}"
        name, expected = f"{OFFSETS}{commit}", "the offsets of the newest batch that is committed"
        yield Obstacle(name, expected, _NOTHING, action, commit)
    elif (-1 if commit is None else commit) < newest - 1 and checkpoint.is_stateful:
        yield Obstacle(
            f"{COMMITS}{newest - 1}",
            f"the commit of the batch before the newest offsets, {OFFSETS}{newest}",
            "none newer than " + ("any" if commit is None else f"{COMMITS}{commit}"),
            f"bring it back from a backup, or delete the newest offsets down to {OFFSETS}"
            f"{0 if commit is None else commit + 1}: these batches then run again",
            commit,
        )


async def _documents(store: ObjectStore, checkpoint: QueryCheckpoint) -> list[Obstacle]:
    """What is wrong with the documents that a start reads first, one after the other."""
    newest = max(checkpoint.offsets, default=None)
    if newest is None:
        return []
    reads: list[tuple[str, Callable[[bytes], Any], int | None]] = [
        (METADATA, read_query_id, None),
        *((f"{OFFSETS}{n}", read_offsets, newest) for n in checkpoint.offsets[-2:]),
    ]
    obstacles = []
    for name, parse, batch in reads:
        try:
            parsed = parse(await store.get(name))
        except ObjectNotFoundError:
            obstacles.append(Obstacle(name, "a file", _NOTHING, BRING_BACK, batch))
        except ValueError as error:
            obstacles.append(Obstacle(name, "what Spark writes", str(error), BRING_BACK, batch))
        else:
            if name == f"{OFFSETS}{newest}":
                obstacles += _source_logs(checkpoint, parsed, newest)
    return obstacles


def _source_logs(checkpoint: QueryCheckpoint, offsets: Offsets, batch: int) -> Iterator[Obstacle]:
    """Entries of file sources' logs that lie between the newest compact one and the offsets."""
    for source, number in offsets.file_logs.items():
        folder = f"{SOURCES}{source}/"
        compact = (n for n in range(number, -1, -1) if f"{folder}{n}.compact" in checkpoint.objects)
        for entry in range(next(compact, -1) + 1, number + 1):
            if f"{folder}{entry}" not in checkpoint.objects:
                expected = f"the files that the source had read up to {OFFSETS}{batch}"
                yield Obstacle(f"{folder}{entry}", expected, _NOTHING, BRING_BACK, batch)


async def _state(
    store: ObjectStore, checkpoint: QueryCheckpoint, located: Located, batch: int
) -> list[Obstacle]:
    """The versions that the newest commit names and that Spark cannot load, one for each store."""
    homes = homes_of(checkpoint, located.entries)
    reader = ChangelogReader(store)
    look = partial(_look_at_version, store, checkpoint, located, reader, homes, batch)
    try:
        obstacles = await gather_bounded(checkpoint.commits[batch].ids, look)
    finally:
        await reader.close()
    return list(filter(None, obstacles.values()))


async def _look_at_version(
    store: ObjectStore,
    checkpoint: QueryCheckpoint,
    located: Located,
    reader: ChangelogReader,
    homes: Homes,
    batch: int,
    store_id: NamedId,
) -> Obstacle | None:
    directory = homes.get(key_of(batch, store_id))
    if directory is None:
        return None  # It is nowhere, and counted among what is lost.

    def name_of(version: Version) -> ChangelogName | None:
        return ChangelogName.of(directory, *version)

    async def lineage(version: Version) -> Sequence[Version]:
        name = name_of(version)
        entry = located.entries.get(name) if name is not None else None
        where = f"{STATE}{directory}/{version[0]}_{version[1]}.changelog"
        data = await (reader.read(entry) if entry is not None else store.get(where))
        return lineage_of(read_changelog(data, where))

    snapshots = frozenset(
        (snapshot.version, snapshot.id)
        for snapshot in checkpoint.snapshots
        if snapshot.directory == directory and snapshot.id is not None
    )
    version = batch + 1, store_id.id
    try:
        path = await Loading(directory, snapshots, lineage).path(version)
    except UnreadableCodecError:
        return None  # Spark reads it.
    except UNREADABLE as error:
        return _of_error(error.what, error, batch)
    for changelog in path.changelogs:
        name = name_of(changelog)
        if name not in located.entries and name not in checkpoint.changelogs:
            where = f"{STATE}{directory}/{changelog[0]}_{changelog[1]}.changelog"
            return Obstacle(
                where, "a changelog, in the log or as a file", "nothing", BRING_BACK, batch
            )
    return None


def _of_error(where: str, error: TidelogError, batch: int | None) -> Obstacle:
    actual = error.found or str(error)
    return Obstacle(where, error.expected or "a readable object", actual, error.action, batch)
