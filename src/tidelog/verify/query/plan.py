"""The units of a Spark checkpoint: its state stores, and the commits and offsets of its batches.

Invariant: a pure function of what was read and listed.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
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


@dataclass(frozen=True)
class StateStores:
    """The state stores that the commits of the chosen batches name."""

    checkpoint: QueryCheckpoint
    located: Located
    listed: Listed
    commits: Mapping[int, Commit]
    homes: Homes

    @cached_property
    def cleaned_up(self) -> frozenset[tuple[int, str]]:
        """Batches and state stores where the batch lies below all that Spark keeps of the store."""
        stores = self.located.assessment.stores
        return frozenset(
            (batch, home)
            for batch, home, _ in self._named()
            if batch in self.listed.expirable and batch + 1 < stores[home].floor
        )

    def units(self) -> Iterator[StateStoreUnit]:
        """A unit per state store of which something is left."""
        wanted: dict[str, list[Version]] = defaultdict(list)
        for batch, home, id in self._named():
            if (batch, home) not in self.cleaned_up:
                wanted[home].append((batch + 1, id))
        changelogs: dict[str, dict[Version, IndexEntry | None]] = defaultdict(dict)
        for name in self.checkpoint.changelogs:
            changelogs[name.directory][name.version, name.id] = None
        for name, entry in self.located.known.items():
            changelogs[name.directory][name.version, name.id] = entry
        snapshots: dict[str, list[Version]] = defaultdict(list)
        for snapshot in self.checkpoint.snapshots:
            if snapshot.id is not None:
                snapshots[snapshot.directory].append((snapshot.version, snapshot.id))
        sizes = _by_directory(self.listed.sizes, wanted)
        checksums = str(self.listed.conf.get(_ROW_CHECKSUM)).lower() == "true"
        for directory, versions in wanted.items():
            yield StateStoreUnit(
                directory=directory,
                wanted=tuple(sorted(versions)),
                changelogs=tuple(changelogs[directory].items()),
                snapshots=tuple(snapshots[directory]),
                sizes=tuple(sizes[directory]),
                unfollowable=ROW_CHECKSUMS if checksums else None,
            )

    def _named(self) -> Iterator[tuple[int, str, str]]:
        """Batch, directory and id of every version that commits name and that has a home."""
        for batch, commit in self.commits.items():
            for named in commit.ids:
                home = self.homes.get(key_of(batch, named))
                if home is not None:
                    yield batch, home, named.id


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
    """The checksum files there are."""

    @property
    def weight(self) -> int:
        """About a kilobyte each."""
        return len(self.files) << 10

    async def run(self, workspace: Workspace) -> UnitResult:
        """Read all these files; raises errors that are no finding."""
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
