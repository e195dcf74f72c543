"""What units of a verification find: restored partitions and findings, which can be pickled."""

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal

from tidelog.checkpoint.finding import Finding
from tidelog.checkpoint.invariants import Invariant
from tidelog.checkpoint.slots import no_such_checkpoint
from tidelog.engines import Unit
from tidelog.errors import FormatVersionError, ObjectNotFoundError, RestoreError, TidelogError
from tidelog.options.units import plural
from tidelog.verify.fingerprint import Fingerprint

Choice = int | str
"""Which checkpoints to verify: a number or batch, a savepoint's name, `latest` or `all`."""

Redundancy = Literal["equal", "different", "not checked"]

NO_OBJECT: Final = "no such object"
"""What is found where an object is missing."""

_AT_BYTE: Final = re.compile(r"at byte \d+")


class CheckName(StrEnum):
    """Checks besides those of `checkpoint.invariants.Invariant`, as reports name them."""

    RESTORE = "restore"
    """A partition's table and log make a state."""
    ORDER = "order"
    """Within a generation no partition's changes become fewer from checkpoint to checkpoint."""
    SEGMENT_NAME = "segment-name"
    """The author in a segment's header is the one in its name."""
    OWNER = "owner"
    """A segment's footer names a log range as that of the partition which uses it."""
    ROWS = "rows"
    """Every row belongs to a known state, to the partition's key groups, to its key's group."""
    REDUNDANCY = "redundancy"
    """An older materialization (snapshot) and the log above it make the same state."""
    RESTART = "restart"
    """Spark can start the query again: metadata, newest offsets and the commit before them."""
    COMMIT = "commit"
    """Every batch between the oldest and the newest has its offsets and its commit."""
    INDEX = "index"
    """The index names every changelog that is needed."""
    LOST = "lost"
    """Every changelog that a retained batch needs is somewhere."""
    LINEAGE = "lineage"
    """A changelog names those before it as the commits do."""


@dataclass(frozen=True, slots=True)
class RestoredPartition:
    """A partition that was restored, for the checkpoints that hold it so."""

    partition: str
    operator: str
    checkpoints: tuple[int, ...]
    changes: int
    """Changes replayed from the log, or records of changelogs."""
    fingerprint: Fingerprint | None
    """Fingerprint of all rows; None: only Spark can read all of them."""
    redundancy: Redundancy
    reason: str | None = None
    """Why redundancy was not checked."""


@dataclass(frozen=True, slots=True)
class RowViolation:
    """Rows that break one rule."""

    expected: str
    first: str
    rows: int = 1

    @property
    def found(self) -> str:
        return (
            self.first
            if self.rows == 1
            else f"{self.first}, and {plural(self.rows - 1, 'row')} more"
        )


@dataclass(frozen=True, slots=True)
class PathResult:
    """What one path to the state of a partition makes; some are compared after all are replayed."""

    partition: int
    """Number of the partition in the plan."""
    alternate: bool
    """Whether the path begins at an older materialization than the one its checkpoint names."""
    groups: Mapping[int, Fingerprint] = field(default_factory=dict)
    """Fingerprints of all key groups that have rows."""
    violations: tuple[RowViolation, ...] = ()
    error: TidelogError | None = None
    """Why the path cannot be replayed: damage."""


@dataclass(frozen=True, slots=True)
class UnitResult:
    restored: tuple[RestoredPartition, ...] = ()
    findings: tuple[Finding, ...] = ()
    paths: tuple[PathResult, ...] = ()
    coverage: Mapping[str, bool] = field(default_factory=dict)
    """The objects that were read, and whether a checksum covers all of their bytes."""


Settled = tuple[Sequence[UnitResult], Collection[int]]
"""What the results of units come to, and the checkpoints that are there after all."""


@dataclass(frozen=True, slots=True)
class WorkUnits:
    """What there is to verify, known from manifests, indexes and listings."""

    checkpoints: Sequence[int]
    """The numbers of the chosen checkpoints (of a Spark query: batches), in ascending order."""
    listed: Collection[int]
    """All checkpoints that were there."""
    findings: Sequence[Finding]
    """What is wrong, as far as it is known without reading."""
    units: Sequence[Unit[UnitResult]]
    """What is to be read, largest first."""
    settle: Callable[[Sequence[UnitResult]], Awaitable[Settled]]
    objects: Sequence[str] = ()
    """All objects of a query's checkpoint, each of which is looked at or named."""
    expired: frozenset[int] = frozenset()
    """Checkpoints that have lost state to Spark's own clean-up."""


def choose(
    there: Mapping[int, str | None], chosen: Choice, kind: str, url: str, command: str
) -> list[int]:
    """The checkpoints to verify of those that are there, with the names of savepoints; ascending.

    Raises CheckpointNotFoundError for one that is not; `command` lists those of its `kind`.
    """
    if chosen == "all":
        return sorted(there)
    matches = [max(there)] if chosen == "latest" else [n for n in there if chosen in {n, there[n]}]
    if matches:
        return [max(matches)]
    raise no_such_checkpoint(f"{kind} {chosen} of {url}", there, command)


def object_in(text: str, objects: Mapping[str, str]) -> str | None:
    """The object of the local file that a text names; `objects` are those of files by name."""
    for name, object_name in objects.items():
        if f"/{name}" in text:
            return object_name
    return None


def finding_of(
    error: TidelogError,
    names: Iterable[str] = (),
    *,
    check: str = Invariant.READABLE,
    partition: str | None = None,
    unusable: tuple[int, ...] = (),
) -> Finding:
    """The finding of a read error, about one of `names`, else about the first path it names."""
    names = names or [word.rstrip(",") for word in error.what.split() if "/" in word][:1]
    object_name = max((name for name in names if name in error.what), key=len, default=None)
    position = _AT_BYTE.search(error.what)
    actual = error.found or str(error)
    if isinstance(error, (ObjectNotFoundError, RestoreError)):
        check = Invariant.OBJECTS if error.found == NO_OBJECT else CheckName.RESTORE
    return Finding(
        check=check,
        where=object_name or error.what,
        expected=error.expected or "a readable object",
        found=f"{actual}, {position.group()}" if object_name and position else actual,
        partitions=() if partition is None else (partition,),
        unusable=unusable,
        newer_format=isinstance(error, FormatVersionError),
    )
