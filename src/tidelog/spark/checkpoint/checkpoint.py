"""A Spark checkpoint as it is stored, read with a few LISTs and a GET per commit and per roll-up;
and whether a location holds one, or a store of a job.

Invariants: nothing is written; damage to one object is kept with its name and hides no other; an
object that disappears between listing and reading counts as never seen; names are relative to the
checkpoint's root. Layout: docs/internals/format.md.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final, Literal, NamedTuple
from urllib.parse import quote

from tidelog.catalog.application import refuse_application
from tidelog.concurrency import Progress, gather_bounded, no_progress
from tidelog.errors import CorruptObjectError, FormatVersionError, ObjectNotFoundError, TidelogError
from tidelog.spark.checkpoint.commits import Commit, NamedId, read_commit
from tidelog.spark.format.damage import INDEX_LOST, damaged
from tidelog.spark.format.index import IndexDocument, IndexEntry, read_index
from tidelog.spark.format.names import IN_COMMIT, ChangelogName, roll_up_name
from tidelog.storage import object_names
from tidelog.storage.port import ObjectStore

COMMITS: Final = IN_COMMIT
OFFSETS: Final = "offsets/"
STATE: Final = "state/"
SOURCES: Final = "sources/"
METADATA: Final = "metadata"
"""Where Spark keeps the id of the query."""
LOG: Final = "_tidelog/"
SEGMENTS: Final = LOG + "segments/"
INDEX: Final = LOG + "index/"

UNREADABLE: Final = (CorruptObjectError, FormatVersionError)
"""Errors that concern one object and not the store."""

Entries = Mapping[ChangelogName, IndexEntry]
Read = Commit | IndexDocument | TidelogError | None
"""What a commit or a roll-up holds, or what is wrong with it; None when it has disappeared."""


class VersionKey(NamedTuple):
    """One version of a state store, as a commit names it."""

    operator: int
    partition: int
    version: int
    id: str
    """Empty in checkpoint format 1."""


Homes = Mapping[VersionKey, str]
"""Directories of state stores, such as `0/3`, by the versions they have."""

Layout = Literal["job", "query"]
"""tidelog's own store of a job, or the checkpoint of a Spark query."""

_PLACES: Final[dict[Layout, tuple[str, ...]]] = {
    "job": (object_names.CHECKPOINTS,),
    "query": (COMMITS, OFFSETS, LOG),
}
"""Where a location has something if it is of this layout."""

_SNAPSHOT: Final = re.compile(r"(\d+/\d+(?:/[^/]+)?)/(\d+)(?:_([^/]+))?\.zip")


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """A snapshot of one state store, which Spark writes as a zip file."""

    directory: str
    """Such as `0/3` or `1/3/left-keyToNumValues`."""
    version: int
    id: str | None
    """The id of the version; None in checkpoint format 1."""


@dataclass(frozen=True)
class QueryCheckpoint:
    """Everything the commands need to know of a checkpoint, in memory."""

    url: str
    objects: Mapping[str, int]
    """Length in bytes of every object of Spark's and the plug-in's that was listed."""
    read: Mapping[str, Read]
    """What was read of commits and roll-ups, by name."""

    @cached_property
    def offsets(self) -> list[int]:
        """Batches whose offsets are written, in order."""
        return _numbers(self.objects, OFFSETS)

    @cached_property
    def commits(self) -> dict[int, Commit]:
        """Readable commits by batch, in order."""
        commits: dict[int, Commit] = {}
        for content in self.read.values():
            if isinstance(content, Commit):
                commits[content.batch] = content
        return dict(sorted(commits.items()))

    @cached_property
    def roll_ups(self) -> dict[int, IndexDocument]:
        """The rolled-up index of each window, by the window's first batch, in order."""
        documents: dict[int, IndexDocument] = {}
        for content in self.read.values():
            if isinstance(content, IndexDocument):
                documents[content.first] = content
        return dict(sorted(documents.items()))

    @cached_property
    def damaged(self) -> dict[str, TidelogError]:
        """Unreadable objects by name: commits and roll-ups; index lines by their commit's name."""
        errors = {}
        for name, content in self.read.items():
            error = content.damage if isinstance(content, Commit) else content
            if isinstance(error, TidelogError):
                errors[name] = error
        return errors

    @cached_property
    def damaged_commits(self) -> dict[int, TidelogError]:
        """What is wrong with commits that cannot be read, by batch."""
        errors: dict[int, TidelogError] = {}
        for name, content in self.read.items():
            if name.startswith(COMMITS) and isinstance(content, TidelogError):
                errors[int(name.removeprefix(COMMITS))] = content
        return errors

    @cached_property
    def segments(self) -> dict[str, int]:
        """Length in bytes of the segments that are objects, by name without directory."""
        return {
            name.removeprefix(SEGMENTS): size
            for name, size in self.objects.items()
            if name.startswith(SEGMENTS) and name.endswith(".seg")
        }

    @cached_property
    def in_commits(self) -> dict[str, int]:
        """Length in bytes of the segments within commits, by their names in the index."""
        return {
            f"{IN_COMMIT}{batch}": commit.segment
            for batch, commit in self.commits.items()
            if commit.segment is not None
        }

    @cached_property
    def segment_bytes(self) -> dict[str, int]:
        """Length in bytes of all segments, by their names in the index."""
        return self.in_commits | self.segments

    @cached_property
    def state_files(self) -> set[str]:
        """Names of all objects below `state`."""
        return {name for name in self.objects if name.startswith(STATE)}

    @cached_property
    def changelogs(self) -> dict[ChangelogName, int]:
        """Real changelog files with checkpoint ids, and their lengths in bytes."""
        changelogs: dict[ChangelogName, int] = {}
        for file in self.state_files:
            if (name := ChangelogName.parse(file.removeprefix(STATE))) is not None:
                changelogs[name] = self.objects[file]
        return changelogs

    @cached_property
    def snapshots(self) -> list[StoreSnapshot]:
        """Snapshots of all state stores, of failed attempts as well."""
        snapshots: list[StoreSnapshot] = []
        for name in sorted(self.state_files):
            if match := _SNAPSHOT.fullmatch(name.removeprefix(STATE)):
                snapshots.append(StoreSnapshot(match[1], int(match[2]), match[3]))
        return snapshots

    @cached_property
    def committed(self) -> set[int]:
        """Batches that have a commit, readable or not."""
        return {*self.commits, *self.damaged_commits}

    @cached_property
    def is_stateful(self) -> bool:
        """Whether a batch has left state."""
        return bool(self.state_files) or any(commit.ids for commit in self.commits.values())

    @cached_property
    def newest(self) -> int | None:
        """The newest committed batch."""
        return max(self.commits, default=None)

    @cached_property
    def retained(self) -> dict[int, Commit]:
        """The commits Spark still counts on: it purges offsets and commits alike, but the plug-in
        keeps a commit until its index is rolled up.
        """
        oldest = min(self.offsets, default=0)
        return {batch: commit for batch, commit in self.commits.items() if batch >= oldest}

    @cached_property
    def is_empty(self) -> bool:
        """Whether no batch was ever planned here."""
        return not (self.committed or self.offsets or self.segments or self.state_files)

    def documents(self) -> Iterable[IndexDocument]:
        """All readable index documents; a batch may stand in two of them, which then agree, but
        that a roll-up, which comes later, does not name segments within commits.
        """
        for commit in self.commits.values():
            if commit.index is not None:
                yield commit.index
        yield from self.roll_ups.values()

    @cached_property
    def indexed(self) -> Entries:
        """All entries of the readable index.

        A roll-up can be older than the commits of its batches, where a query was set back and ran
        on: then the commits decide which of its entries count.
        """
        entries: dict[ChangelogName, IndexEntry] = {}
        for document in self.documents():
            for entry in document.entries:
                if self.names(entry.name):
                    entries[entry.name] = entry
        return entries

    def names(self, name: ChangelogName) -> bool:
        """Whether the commit of its batch names a changelog, as far as there is one to ask."""
        commit = self.commits.get(name.version - 1)
        return commit is None or NamedId(name.operator, name.partition, name.id) in commit.named


async def read_checkpoint(store: ObjectStore, progress: Progress = no_progress) -> QueryCheckpoint:
    """Read the checkpoint at a store's root; segments are only listed. Raises what the store
    raises.
    """
    objects = await _listed(store, COMMITS, INDEX)
    names = [f"{COMMITS}{batch}" for batch in _numbers(objects, COMMITS)]
    names += [name for name in objects if name.startswith(INDEX) and name.endswith(".json")]
    read = await gather_bounded(names, partial(_read, store), progress)
    # After the index, whose names are there by now, and before the offsets: state that a running
    # query has cleaned up meanwhile belongs to batches that it has purged since.
    objects |= await _listed(store, SEGMENTS, STATE, SOURCES, OFFSETS)
    return QueryCheckpoint(store.url, objects, read)


async def find_layout(store: ObjectStore) -> Layout:
    """The layout at a store's root.

    A job has slots: other objects in the folder of its checkpoints make no job. Raises
    ObjectNotFoundError for anything else, so a mistyped URL is never an empty store, ConfigError
    for an application with a store for each partition, and what the store raises.
    """
    for layout, prefixes in _PLACES.items():
        for prefix in prefixes:
            async for info in store.list(prefix):
                if layout == "query" or object_names.slot_of(info.name) is not None:
                    return layout
    await refuse_application(store)
    raise ObjectNotFoundError(
        f"location {store.url}",
        expected="checkpoints/ of a tidelog job, or commits/ and offsets/ of a Spark query",
        found="neither",
        action="check the URL; the first checkpoint makes it readable",
    )


def store_url(location: str) -> str:
    """The URL under which `tidelog.storage` opens a Spark checkpoint location.

    Hadoop's s3a:// is s3://, and its file:/path, in which nothing is encoded, is file:///path;
    others stay as they are.
    """
    if location.startswith(("s3a://", "s3n://")):
        return "s3" + location[3:]
    if location.startswith("file:/") and not location.startswith("file://"):
        return "file://" + quote(location.removeprefix("file:"))
    return location


def require_checkpoint(checkpoint: QueryCheckpoint) -> None:
    """Raise ObjectNotFoundError where no query has ever planned a batch."""
    if checkpoint.is_empty:
        raise ObjectNotFoundError(
            f"Spark checkpoint at {checkpoint.url}",
            expected="the checkpoint of a streaming query, with offsets/ and commits/",
            found="neither",
            action="check the URL",
        )


def homes_of(checkpoint: QueryCheckpoint, entries: Entries) -> Homes:
    """All versions of which something is stored; `entries` are the changelogs in the log."""
    homes: dict[VersionKey, str] = {}
    for name in (*entries, *checkpoint.changelogs):
        key = VersionKey(name.operator, name.partition, name.version, name.id)
        homes[key] = name.directory
    for snapshot in checkpoint.snapshots:
        operator, partition = map(int, snapshot.directory.split("/")[:2])
        key = VersionKey(operator, partition, snapshot.version, snapshot.id or "")
        homes[key] = snapshot.directory
    return homes


def key_of(batch: int, store_id: NamedId) -> VersionKey:
    """Where the commit of a batch says that a version is."""
    return VersionKey(store_id.operator, store_id.partition, batch + 1, store_id.id)


async def listed_batches(store: ObjectStore, folder: str) -> list[int]:
    """The batches that have a file in `commits/` or `offsets/` now, in order."""
    return _numbers(await _listed(store, folder), folder)


def is_sidecar(name: str) -> bool:
    """Whether this is the hidden checksum file that Hadoop keeps for an object on a local disk."""
    leaf = name.rpartition("/")[2]
    return leaf.startswith(".") and leaf.endswith(".crc")


def sidecar(name: str) -> str:
    """Name of the checksum file that would belong to an object."""
    folder, slash, leaf = name.rpartition("/")
    return f"{folder}{slash}.{leaf}.crc"


def segment_object(segment: str) -> str:
    """The object that a segment is, or the commit that it lies in, by its name in the index."""
    return segment if segment.startswith(IN_COMMIT) else SEGMENTS + segment


def by_segment(entries: Iterable[IndexEntry]) -> list[IndexEntry]:
    """Changelogs in the order of their segments: read so, each segment is fetched once."""
    return sorted(entries, key=lambda entry: entry.pieces[0].segment)


async def _listed(store: ObjectStore, *prefixes: str) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for prefix in prefixes:
        async for info in store.list(prefix):
            sizes[info.name] = info.size
    return sizes


def _numbers(names: Iterable[str], prefix: str) -> list[int]:
    numbers: list[int] = []
    for name in names:
        leaf = name.removeprefix(prefix)
        if leaf != name and leaf.isdecimal():
            numbers.append(int(leaf))
    return sorted(numbers)


async def _read(store: ObjectStore, name: str) -> Read:
    try:
        data = await store.get(name)
        if name.startswith(COMMITS):
            return read_commit(int(name.removeprefix(COMMITS)), data, name)
        document = read_index(data.decode(errors="replace").strip(), name)
    except ObjectNotFoundError:
        return None  # purged since the listing
    except UNREADABLE as error:
        return error
    if name == INDEX + roll_up_name(document.first):
        return document
    return damaged(
        f"object {name}",
        "the index of the batches in its name",
        f"that of batches {document.first} to {document.last}",
        INDEX_LOST,
    )
