"""The work that a Spark checkpoint makes.

Invariant: a pure function of what was read and listed; every id that the commit of a retained
batch names belongs to a state store that is checked, or a finding says that it is nowhere, or it
lies below what Spark keeps.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.checkpoint.finding import Finding
from tidelog.spark.checkpoint.checkpoint import COMMITS, OFFSETS, STATE, Checkpoint, sidecar
from tidelog.spark.checkpoint.commits import Commit
from tidelog.spark.checkpoint.locate import Located
from tidelog.spark.format.index import IndexEntry
from tidelog.verify.query.changelogs import Version
from tidelog.verify.query.segments import FilesUnit, SparkSegmentUnit
from tidelog.verify.query.state_store import StateStoreUnit
from tidelog.verify.query.structure import Homes, Listed, first_sight, homes_of, place_of
from tidelog.verify.unit import Unit

ROW_CHECKSUMS: Final = "rows carry checksums that only Spark can read"
_ROW_CHECKSUM: Final = "spark.sql.streaming.stateStore.rowChecksum.enabled"


@dataclass(frozen=True, slots=True)
class QueryWork:
    """What is to be read, and what is known without reading."""

    units: list[Unit]
    """Largest first."""
    findings: list[Finding]
    expired: frozenset[int]
    """Batches that have lost state to Spark's own clean-up."""


def plan(
    checkpoint: Checkpoint, located: Located, listed: Listed, chosen: Collection[int]
) -> QueryWork:
    """The work for the chosen batches."""
    commits = {n: c for n, c in checkpoint.retained.items() if n in chosen}
    homes = homes_of(checkpoint, located.known)
    findings = list(first_sight(checkpoint, located, listed, homes, chosen))
    units: list[Unit] = []
    cleaned_up = _cleaned_up(located, listed, commits, homes)
    units += _stores(checkpoint, located, listed, commits, homes, cleaned_up)
    units += (
        SparkSegmentUnit(name, checkpoint.segments[name])
        for name in sorted(located.assessment.live_segments())
    )
    if commits:
        units.append(_files(listed, commits))
    units.sort(key=lambda unit: unit.weight, reverse=True)
    return QueryWork(units, findings, frozenset(batch for batch, _ in cleaned_up))


def _cleaned_up(
    located: Located,
    listed: Listed,
    commits: Mapping[int, Commit],
    homes: Homes,
) -> set[tuple[int, str]]:
    """Batches and state stores where the batch lies below all that Spark keeps of the store."""
    named = (
        (batch, each) for batch in listed.expirable & commits.keys() for each in commits[batch].ids
    )
    found = ((batch, homes.get(place_of(batch, each))) for batch, each in named)
    stores = located.assessment.stores
    return {
        (batch, home)
        for batch, home in found
        if home is not None and batch + 1 < stores[home].floor
    }


def _stores(
    checkpoint: Checkpoint,
    located: Located,
    listed: Listed,
    commits: Mapping[int, Commit],
    homes: Homes,
    cleaned_up: Collection[tuple[int, str]],
) -> Iterator[StateStoreUnit]:
    wanted: dict[str, list[Version]] = defaultdict(list)
    for batch, commit in commits.items():
        for named in commit.ids:
            home = homes.get(place_of(batch, named))
            if home is not None and (batch, home) not in cleaned_up:
                wanted[home].append((batch + 1, named.id))
    changelogs: dict[str, dict[Version, IndexEntry | None]] = defaultdict(dict)
    for name in checkpoint.changelogs:
        changelogs[name.directory][name.version, name.id] = None
    for name, entry in located.known.items():
        changelogs[name.directory][name.version, name.id] = entry
    snapshots: dict[str, list[Version]] = defaultdict(list)
    for snapshot in checkpoint.snapshots:
        if snapshot.id is not None:
            snapshots[snapshot.directory].append((snapshot.version, snapshot.id))
    sizes = _by_directory(listed.sizes, wanted)
    checksums = str(listed.conf.get(_ROW_CHECKSUM)).lower() == "true"
    for directory, versions in wanted.items():
        yield StateStoreUnit(
            directory=directory,
            wanted=tuple(sorted(versions)),
            changelogs=tuple(changelogs[directory].items()),
            snapshots=tuple(snapshots[directory]),
            sizes=tuple(sizes[directory]),
            unfollowable=ROW_CHECKSUMS if checksums else None,
        )


def _by_directory(
    sizes: Mapping[str, int], directories: Iterable[str]
) -> dict[str, list[tuple[str, int]]]:
    """The files of every state store; a store's directory may hold those of others."""
    found: dict[str, list[tuple[str, int]]] = {directory: [] for directory in directories}
    for name, size in sizes.items():
        folder = name.removeprefix(STATE).rpartition("/")[0].removesuffix("/SSTs")
        if folder in found:
            found[folder].append((name, size))
    return found


def _files(listed: Listed, commits: Mapping[int, Commit]) -> FilesUnit:
    names = ((f"{folder}{batch}", batch) for batch in commits for folder in (COMMITS, OFFSETS))
    there = [(name, batch) for name, batch in names if name in listed.sizes]
    beside = {sidecar(name) for name, _ in there}
    return FilesUnit(tuple(there), frozenset(beside & listed.sizes.keys()))
