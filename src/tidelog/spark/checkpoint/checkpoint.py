"""A Spark checkpoint as it is stored: commits, index, segments, and what lies beside them.

Invariants: names are relative to the checkpoint's root and built here; names of changelogs are
unique, so two index entries of one name mean the same bytes. Layout: docs/internals/format.md.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidelog.errors import ObjectNotFoundError, TidelogError
from tidelog.spark.checkpoint.commits import Commit
from tidelog.spark.format.index import IndexDocument, IndexEntry
from tidelog.spark.format.names import ChangelogName

COMMITS: Final = "commits/"
OFFSETS: Final = "offsets/"
STATE: Final = "state/"
LOG: Final = "_tidelog/"
SEGMENTS: Final = LOG + "segments/"
INDEX: Final = LOG + "index/"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of one state store, which Spark writes as a zip file."""

    directory: str
    """Such as `0/3` or `1/3/left-keyToNumValues`."""
    version: int
    id: str | None
    """The id of the version; None in checkpoint format 1."""


@dataclass(slots=True)
class Checkpoint:
    """Everything the commands need to know of a checkpoint, in memory."""

    url: str
    commits: dict[int, Commit] = field(default_factory=dict)
    roll_ups: dict[int, IndexDocument] = field(default_factory=dict)
    """The rolled-up index of each window, by the window's first batch."""
    damaged: dict[str, TidelogError] = field(default_factory=dict)
    """Unreadable objects by name: commits and roll-ups; index lines under their commit's name."""
    segments: dict[str, int] = field(default_factory=dict)
    """Length in bytes by name without directory."""
    changelogs: dict[ChangelogName, int] = field(default_factory=dict)
    """Real changelog files with checkpoint ids, and their lengths in bytes."""
    snapshots: list[Snapshot] = field(default_factory=list)
    state_files: set[str] = field(default_factory=set)
    """Names of all objects below `state`."""
    offsets: list[int] = field(default_factory=list)
    """Batches whose offsets are written, in order."""
    sidecars: set[str] = field(default_factory=set)
    """Checksum files that Hadoop keeps beside local files."""

    @property
    def is_empty(self) -> bool:
        """Whether no batch was ever planned here."""
        return not (self.commits or self.offsets or self.segments or self.damaged)

    @property
    def newest(self) -> int | None:
        """The newest committed batch."""
        return max(self.commits, default=None)

    @property
    def retained(self) -> dict[int, Commit]:
        """The commits Spark still counts on: it purges offsets and commits alike, but the plug-in
        keeps a commit until its index is rolled up.
        """
        oldest = min(self.offsets, default=0)
        return {batch: commit for batch, commit in self.commits.items() if batch >= oldest}

    def documents(self) -> Iterable[IndexDocument]:
        """All readable index documents; a batch may stand in two of them, which then agree."""
        yield from self.roll_ups.values()
        for commit in self.commits.values():
            if commit.index is not None:
                yield commit.index


def is_sidecar(name: str) -> bool:
    """Whether this is the hidden checksum file that Hadoop keeps beside a local file."""
    leaf = name.rpartition("/")[2]
    return leaf.startswith(".") and leaf.endswith(".crc")


def sidecar(name: str) -> str:
    """Name of the checksum file that would belong to an object."""
    folder, slash, leaf = name.rpartition("/")
    return f"{folder}{slash}.{leaf}.crc"


def require_checkpoint(checkpoint: Checkpoint) -> None:
    """Raise ObjectNotFoundError where no query has ever planned a batch."""
    if checkpoint.is_empty:
        raise ObjectNotFoundError(
            f"Spark checkpoint at {checkpoint.url}",
            expected="the checkpoint of a streaming query, with offsets/ and commits/",
            found="neither",
            action="check the URL",
        )


Entries = Mapping[ChangelogName, IndexEntry]


def indexed(checkpoint: Checkpoint) -> dict[ChangelogName, IndexEntry]:
    """All entries of the readable index.

    A roll-up can be older than the commits of its batches, where a query was set back and ran on:
    then the commits tell which of its entries count.
    """
    entries = (entry for document in checkpoint.documents() for entry in document.entries)
    return {entry.name: entry for entry in entries if _counts(checkpoint, entry.name)}


def _counts(checkpoint: Checkpoint, name: ChangelogName) -> bool:
    """Whether the commit of its batch names a changelog, as far as there is one to ask."""
    commit = checkpoint.commits.get(name.version - 1)
    return commit is None or (name.operator, name.partition, name.id) in commit.named


def committed_only(checkpoint: Checkpoint, entries: Entries) -> dict[ChangelogName, IndexEntry]:
    """The entries of footers without attempts that were not committed, as far as commits say."""
    newest = -1 if checkpoint.newest is None else checkpoint.newest
    kept = {}
    for name, entry in entries.items():
        if _counts(checkpoint, name) and name.version <= newest + 1:
            kept[name] = entry
    return kept


def by_segment(entries: Iterable[IndexEntry]) -> list[IndexEntry]:
    """Changelogs in the order of their segments: read so, each segment is fetched once."""
    return sorted(entries, key=lambda entry: entry.pieces[0].segment)
