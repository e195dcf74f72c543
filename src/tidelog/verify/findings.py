"""The checks of a verification, and the findings that errors of reading stand for."""

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from tidelog.checkpoint.finding import Finding
from tidelog.checkpoint.invariants import Invariant
from tidelog.errors import (
    FormatVersionError,
    ObjectNotFoundError,
    RestoreError,
    TidelogError,
)

NO_OBJECT: Final = "no such object"
"""What is found where an object is missing."""

_AT_BYTE: Final = re.compile(r"at byte \d+")


class Check(StrEnum):
    """Checks besides those of `checkpoint.invariants.Invariant`, as reports name them."""

    RESTORE = "restore"
    """A partition's table and log make a state."""
    ORDER = "order"
    """Within a generation no partition's changes become fewer from slot to slot."""
    SEGMENT_NAME = "segment-name"
    """The author in a segment's header is the one in its name."""
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


def finding_of(
    error: TidelogError,
    names: Iterable[str],
    *,
    check: str = Invariant.READABLE,
    partition: str | None = None,
    unusable: tuple[int, ...] = (),
) -> Finding:
    """The finding that an error of a read stands for; `names` are the objects it can be about."""
    named = max((name for name in names if name in error.what), key=len, default=None)
    place = _AT_BYTE.search(error.what)
    found = error.found or str(error)
    if isinstance(error, (ObjectNotFoundError, RestoreError)):
        check = Invariant.OBJECTS if error.found == NO_OBJECT else Check.RESTORE
    return Finding(
        check=check,
        where=named or error.what,
        expected=error.expected or "a readable object",
        found=f"{found}, {place.group()}" if named and place else found,
        partitions=() if partition is None else (partition,),
        unusable=unusable,
        newer_format=isinstance(error, FormatVersionError),
    )
