"""What a verification found wrong: the object, the partition, the checkpoints it costs.

Invariant: problems that say the same of the same object are one, with all their partitions and
checkpoints, so one damaged object is told once.
"""

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from tidelog.errors import (
    CorruptObjectError,
    FormatVersionError,
    ObjectNotFoundError,
    RestoreError,
    TidelogError,
)

UNREADABLE: Final = (CorruptObjectError, FormatVersionError, ObjectNotFoundError, RestoreError)
"""Errors that are findings about stored objects; all others end the verification."""

NOTHING: Final = "no such object"
"""What is found where an object is missing."""

_AT_BYTE: Final = re.compile(r"at byte \d+")


class Check(StrEnum):
    """Checks besides those of `checkpoint.invariants`, as reports name them."""

    READABLE = "readable"
    """Every byte that is read passes its checksum and has a known format version."""
    OBJECTS = "objects"
    """Every named object is there."""
    RESTORE = "restore"
    """A partition's table and log make a state."""
    ORDER = "order"
    """Within a generation no partition's changes become fewer from slot to slot."""
    SEGMENT_NAME = "segment-name"
    """A segment's header names the author that its name does."""
    OWNER = "owner"
    """A segment's footer names a log range as that of the partition which uses it."""
    ROWS = "rows"
    """Every row belongs to a known state, to the partition's key groups, to its key's group."""
    REDUNDANCY = "redundancy"
    """An older materialization (snapshot) and the log above it make the same state."""
    COMMIT = "commit"
    """Every batch between the oldest and the newest has its offsets and its commit."""
    INDEX = "index"
    """The index names every changelog that is needed."""
    LOST = "lost"
    """Every changelog that a retained batch needs is somewhere."""
    LINEAGE = "lineage"
    """A changelog names those before it as the commits do."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong; `where` names the object, or the part of one."""

    check: str
    where: str
    expected: str
    found: str
    partitions: tuple[str, ...] = ()
    """Operator and subtask (partition) that it was found in."""
    unusable: tuple[int, ...] = ()
    """Checkpoints that cannot be restored because of it."""
    doubtful: tuple[int, ...] = ()
    """Checkpoints that can be restored, but may not hold what they should."""
    newer_format: bool = False
    """The object was written by a newer release; it need not be damaged."""
    action: str | None = None
    """What to do next, where it is not to restore another checkpoint."""

    @property
    def checkpoints(self) -> set[int]:
        """All checkpoints it concerns."""
        return {*self.unusable, *self.doubtful}

    @property
    def is_missing(self) -> bool:
        """Whether an object is not there at all."""
        return self.check == Check.OBJECTS and self.found == NOTHING


def problem_of(
    error: TidelogError,
    names: Iterable[str],
    *,
    check: str = Check.READABLE,
    partition: str | None = None,
    unusable: tuple[int, ...] = (),
) -> Problem:
    """The problem an error of a read stands for; `names` are the objects it can be about."""
    named = max((name for name in names if name in error.what), key=len, default=None)
    place = _AT_BYTE.search(error.what)
    found = error.found or str(error)
    if isinstance(error, (ObjectNotFoundError, RestoreError)):
        check = Check.OBJECTS if error.found == NOTHING else Check.RESTORE
    return Problem(
        check=check,
        where=named or error.what,
        expected=error.expected or "a readable object",
        found=f"{found}, {place.group()}" if named and place else found,
        partitions=() if partition is None else (partition,),
        unusable=unusable,
        newer_format=isinstance(error, FormatVersionError),
    )


@dataclass(slots=True)
class Problems:
    """Collects problems; equal ones are merged, in the order they were first seen."""

    _found: dict[tuple[str, str, str, str], Problem] = field(default_factory=dict)

    def add(self, problems: Iterable[Problem]) -> None:
        """Add problems to those there are."""
        for problem in problems:
            key = problem.check, problem.where, problem.expected, problem.found
            known = self._found.get(key)
            self._found[key] = problem if known is None else _merged(known, problem)

    def all(self) -> tuple[Problem, ...]:
        """All of them, without those that a problem which costs something tells better."""
        found = self._found.values()
        costly = {problem.where for problem in found if problem.checkpoints}
        return tuple(p for p in found if p.checkpoints or p.where not in costly)


def without_confirmed(problem: Problem, confirmed: Container[tuple[str, int]]) -> Problem:
    """A contradiction without the checkpoints that a way of their own confirms.

    `confirmed` are the partitions and checkpoints that were restored in two ways alike.
    """
    if problem.check != Check.REDUNDANCY:
        return problem
    left = (n for n in problem.doubtful if any((p, n) not in confirmed for p in problem.partitions))
    return replace(problem, doubtful=tuple(left))


def _merged(one: Problem, other: Problem) -> Problem:
    return Problem(
        check=one.check,
        where=one.where,
        expected=one.expected,
        found=one.found,
        partitions=tuple(sorted({*one.partitions, *other.partitions})),
        unusable=tuple(sorted({*one.unusable, *other.unusable})),
        doubtful=tuple(sorted({*one.doubtful, *other.doubtful})),
        newer_format=one.newer_format or other.newer_format,
        action=one.action or other.action,
    )
