"""A Spark checkpoint as it is stored: commits, index, segments, and what lies beside them.

Invariant: names are relative to the checkpoint's root and built here; layout: docs/format.md.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tidelog.errors import ObjectNotFoundError, TidelogError
from tidelog.spark.commits import Commit
from tidelog.spark.format.index import IndexDocument
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
    """None in checkpoint format 1."""


@dataclass(slots=True)
class Checkpoint:
    """Everything the commands need to know of a checkpoint, in memory."""

    url: str
    commits: dict[int, Commit] = field(default_factory=dict)
    roll_ups: dict[int, IndexDocument] = field(default_factory=dict)
    """By the first batch of their window."""
    damaged: dict[str, TidelogError] = field(default_factory=dict)
    """Unreadable objects by name: commits and roll-ups; index lines under their commit's name."""
    segments: dict[str, int] = field(default_factory=dict)
    """Length in bytes by name without directory."""
    changelogs: dict[ChangelogName, int] = field(default_factory=dict)
    """Real changelog files with checkpoint ids, and their lengths in bytes."""
    snapshots: list[Snapshot] = field(default_factory=list)
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
