"""One Spark state store: every retained version of it restored, from snapshots and changelogs.

Invariant: what is known without reading it is all in the unit, so it can be checked anywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.spark.checkpoint.checkpoint import STATE
from tidelog.spark.format.changelog import LineageItem
from tidelog.spark.format.index import IndexEntry
from tidelog.verify.query.changelogs import Changelogs, Version
from tidelog.verify.query.files import CheckedFiles
from tidelog.verify.query.findings import StoreFindings
from tidelog.verify.query.followed_table import FollowedTable
from tidelog.verify.query.replay import Replay
from tidelog.verify.query.snapshot import SnapshotFiles
from tidelog.verify.query.version_chain import VersionChainFinder
from tidelog.verify.unit import UnitResult, Workspace


@dataclass(frozen=True, slots=True)
class StateStoreUnit:
    """A state store that retained batches name."""

    directory: str
    """Such as `0/3` or `1/3/left-keyToNumValues`."""
    wanted: tuple[Version, ...]
    """Versions of the store that the commits of retained batches name."""
    changelogs: tuple[tuple[Version, IndexEntry | None], ...]
    """Where the changelog of a version lies; None: in a file."""
    snapshots: tuple[Version, ...]
    sizes: tuple[tuple[str, int], ...]
    """Bytes of all files below its directory."""
    unfollowable: str | None = None
    """Why only Spark can say what its changelogs make."""

    @property
    def label(self) -> str:
        """Operator, partition and store."""
        return self.directory

    @property
    def weight(self) -> int:
        """Bytes of its snapshots and changelogs."""
        in_log = sum(entry.bytes for _, entry in self.changelogs if entry is not None)
        return in_log + sum(size for _, size in self.sizes)

    async def check(self, workspace: Workspace) -> UnitResult:
        """Restore all versions; raises errors that are no finding."""
        sizes = dict(self.sizes)
        files, offload = CheckedFiles(workspace.store, sizes), workspace.effects.offload
        known = dict(self.changelogs)
        changelogs = Changelogs(workspace.store, files, offload, self.directory, known)
        held = FollowedTable(
            workspace=workspace,
            snapshots=SnapshotFiles(files, offload, self.directory, sizes),
            objects={version: self._zip(version) for version in self.snapshots},
            unfollowable=self.unfollowable,
        )
        replay = Replay(frozenset(self.wanted), changelogs, held, StoreFindings(self.directory))

        async def lineage_of(version: Version) -> Sequence[LineageItem]:
            return (await changelogs.read(version)).lineage

        first = any(version == 1 for version, _ in known)
        finder = VersionChainFinder(dict(self.wanted), frozenset(self.snapshots), lineage_of, first)
        return await replay.run(finder)

    def _zip(self, version: Version) -> str:
        return f"{STATE}{self.directory}/{version[0]}_{version[1]}.zip"
