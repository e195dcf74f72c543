"""What is known of a Spark checkpoint before anything large is read.

Invariant: every id that a commit names has at most one home, the state store that has a version
under it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidelog.spark.checkpoint import Checkpoint
from tidelog.spark.commits import NamedId
from tidelog.spark.entries import Entries

Place = tuple[int, int, int, str]
"""Operator, partition, version and id."""

Homes = Mapping[Place, str]
"""Directories of state stores, such as `0/3`, by the versions they have."""


@dataclass(frozen=True, slots=True)
class Listed:
    """What was listed and read besides what the Spark commands read."""

    sizes: Mapping[str, int]
    """Of every object below `state`, `commits` and `offsets`, in bytes."""
    conf: Mapping[str, Any]
    """The settings that the newest readable offsets carry."""
    bad_offsets: Mapping[int, str]
    """Batches whose offsets cannot be read, and what they hold."""
    expirable: frozenset[int]
    """The oldest batches: Spark keeps their commits a little longer than their state."""


def homes_of(checkpoint: Checkpoint, known: Entries) -> Homes:
    """All versions of which something is stored; `known` are the changelogs in the log."""
    homes: dict[Place, str] = {}
    for name in (*known, *checkpoint.changelogs):
        homes[name.operator, name.partition, name.version, name.id] = name.directory
    for snapshot in checkpoint.snapshots:
        operator, partition = map(int, snapshot.directory.split("/")[:2])
        homes[operator, partition, snapshot.version, snapshot.id or ""] = snapshot.directory
    return homes


def place_of(batch: int, named: NamedId) -> Place:
    """Where the commit of a batch says that a version is."""
    return named.operator, named.partition, batch + 1, named.id
