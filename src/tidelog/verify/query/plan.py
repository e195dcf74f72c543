"""The units of a Spark checkpoint: its state stores, and the commits and offsets of its batches.

Invariant: a pure function of what was read and listed.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.checkpoint.finding import UNREADABLE
from tidelog.engines import Workspace
from tidelog.spark.checkpoint.checkpoint import COMMITS, OFFSETS, STATE, QueryCheckpoint, sidecar
from tidelog.spark.checkpoint.commits import Commit
from tidelog.spark.checkpoint.locate import Located
from tidelog.spark.format.index import IndexEntry
from tidelog.verify.query.files import CheckedFiles, Version
from tidelog.verify.query.state_store import StateStoreUnit
from tidelog.verify.query.structure import Homes, Listed, key_of
from tidelog.verify.results import UnitResult, finding_of

ROW_CHECKSUMS: Final = "rows carry checksums that only Spark can read"
_ROW_CHECKSUM: Final = "spark.sql.streaming.stateStore.rowChecksum.enabled"


def state_stores(
    checkpoint: QueryCheckpoint,
    located: Located,
    listed: Listed,
    commits: Mapping[int, Commit],
    homes: Homes,
) -> tuple[list[StateStoreUnit], frozenset[int]]:
    """A unit per state store that the commits of the chosen batches name and of which something is
    left; and the batches that lie below all that Spark keeps of a store.
    """
    wanted: dict[str, list[Version]] = defaultdict(list)
    expired: set[int] = set()
    for batch, commit in commits.items():
        for named in commit.ids:
            home = homes.get(key_of(batch, named))
            if home is None:
                continue
            if batch in listed.expirable and batch + 1 < located.assessment.stores[home].floor:
                expired.add(batch)
            else:
                wanted[home].append((batch + 1, named.id))
    changelogs: dict[str, dict[Version, IndexEntry | None]] = defaultdict(dict)
    for name, entry in {**dict.fromkeys(checkpoint.changelogs), **located.known}.items():
        changelogs[name.directory][name.version, name.id] = entry
    snapshots: dict[str, list[Version]] = defaultdict(list)
    for snapshot in checkpoint.snapshots:
        if snapshot.id is not None:
            snapshots[snapshot.directory].append((snapshot.version, snapshot.id))
    sizes = _by_directory(listed.sizes, wanted)
    checksums = str(listed.conf.get(_ROW_CHECKSUM)).lower() == "true"
    units = [
        StateStoreUnit(
            directory=directory,
            wanted=tuple(sorted(versions)),
            changelogs=tuple(changelogs[directory].items()),
            snapshots=tuple(snapshots[directory]),
            sizes=tuple(sizes[directory]),
            unfollowable=ROW_CHECKSUMS if checksums else None,
        )
        for directory, versions in wanted.items()
    ]
    return units, frozenset(expired)


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


@dataclass(frozen=True, slots=True)
class FilesUnit:
    """Commits and offsets of retained batches."""

    files: tuple[tuple[str, int], ...]
    """Names, and the batch that each belongs to."""
    checksums: frozenset[str]

    @property
    def weight(self) -> int:
        """About a kilobyte each."""
        return len(self.files) << 10

    async def run(self, workspace: Workspace) -> UnitResult:
        reader = CheckedFiles(workspace.store, self.checksums)
        findings = []
        for name, batch in self.files:
            try:
                await reader.read(name)
            except UNREADABLE as error:
                findings.append(finding_of(error, [name], unusable=(batch,)))
        return UnitResult(findings=tuple(findings))


def files_unit(listed: Listed, commits: Iterable[int]) -> FilesUnit:
    """The commits and offsets of these batches, as far as there are some."""
    names = ((f"{folder}{batch}", batch) for batch in commits for folder in (COMMITS, OFFSETS))
    there = [(name, batch) for name, batch in names if name in listed.sizes]
    checksums = {sidecar(name) for name, _ in there}
    return FilesUnit(tuple(there), frozenset(checksums & listed.sizes.keys()))
