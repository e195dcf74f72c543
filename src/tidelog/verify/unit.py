"""What a unit of work gets, and what comes back: units are checked anywhere, in any order.

Invariants: a unit and its result are small and can be pickled; a unit reads the store, writes to
its own directory alone, and turns damage into findings; any other error ends the verification.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from tidelog.checkpoint.finding import Finding
from tidelog.concurrency import Progress
from tidelog.effects import Effects
from tidelog.errors import TidelogError
from tidelog.storage.access import StoreAccess
from tidelog.storage.port import ObjectStore
from tidelog.verify.fingerprint import Fingerprint

Choice = int | Literal["all", "latest"]
"""Which checkpoints to verify: a slot (of a Spark checkpoint: a batch), or these words."""

Redundancy = Literal["equal", "different", "not checked"]


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where a unit is checked; `directory` is its own, and is removed after it."""

    store: ObjectStore
    effects: Effects
    directory: Path


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """How a process opens the store and where it builds tables; it can be pickled."""

    url: str
    """URL of the store, as every process can open it."""
    access: StoreAccess = field(default_factory=StoreAccess)
    directory: str | None = None
    """Where tables are built; None: the system's temporary directory."""


@dataclass(frozen=True, slots=True)
class Restored:
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
    """The first of these rows."""
    rows: int = 1

    @property
    def found(self) -> str:
        """What to report."""
        return self.first if self.rows == 1 else f"{self.first}, and {self.rows - 1} rows more"


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
    """What the check of one unit found."""

    restored: tuple[Restored, ...] = ()
    findings: tuple[Finding, ...] = ()
    paths: tuple[PathResult, ...] = ()


class Unit(Protocol):
    """A part of a store that is checked by itself."""

    @property
    def label(self) -> str:
        """The name of the unit for people."""
        ...

    @property
    def weight(self) -> int:
        """About how many bytes it reads."""
        ...

    async def check(self, workspace: Workspace) -> UnitResult:
        """Check it; raises errors that are no finding, such as a store out of reach."""
        ...


class Engine(Protocol):
    """Checks units, many at a time."""

    @property
    def name(self) -> str:
        """The name that option --engine takes."""
        ...

    @property
    def workers(self) -> int:
        """How many units it checks at a time."""
        ...

    async def run(self, units: Sequence[Unit], progress: Progress) -> list[UnitResult]:
        """The results in the order of `units`; raises the first error of any."""
        ...
