"""One Spark state store: every retained version of it restored, from snapshots and changelogs.

Invariant: what is known without reading it is all in the unit, so it can be checked anywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.spark.checkpoint import STATE
from tidelog.spark.format.changelog import LineageItem
from tidelog.spark.format.index import IndexEntry
from tidelog.verify.bench import Bench, UnitResult
from tidelog.verify.query.changelogs import Changelogs, Version
from tidelog.verify.query.files import CheckedFiles
from tidelog.verify.query.findings import Findings
from tidelog.verify.query.held import Held
from tidelog.verify.query.line import LineFinder
from tidelog.verify.query.replay import Replay
from tidelog.verify.query.snapshot import SnapshotFiles


@dataclass(frozen=True, slots=True)
class StateStoreUnit:
    """A state store that retained batches name."""

    directory: str
    """Such as `0/3` or `1/3/left-keyToNumValues`."""
    wanted: tuple[Version, ...]
    """Its versions as the commits of retained batches name them."""
    changelogs: tuple[tuple[Version, IndexEntry | None], ...]
    """Where they lie; None: in a file."""
    snapshots: tuple[Version, ...]
    sizes: tuple[tuple[str, int], ...]
    """Of all files below its directory, in bytes."""
    unfollowable: str | None = None
    """Why what its changelogs make cannot be told without Spark."""

    @property
    def label(self) -> str:
        """Operator, partition and store."""
        return self.directory

    @property
    def weight(self) -> int:
        """Bytes of its snapshots and changelogs."""
        in_log = sum(entry.bytes for _, entry in self.changelogs if entry is not None)
        return in_log + sum(size for _, size in self.sizes)

    async def check(self, bench: Bench) -> UnitResult:
        """Restore all versions; raises errors that are no finding."""
        sizes = dict(self.sizes)
        files, offload = CheckedFiles(bench.store, sizes), bench.effects.offload
        known = dict(self.changelogs)
        changelogs = Changelogs(bench.store, files, offload, self.directory, known)
        held = Held(
            bench=bench,
            snapshots=SnapshotFiles(files, offload, self.directory, sizes),
            objects={version: self._zip(version) for version in self.snapshots},
            unfollowable=self.unfollowable,
        )
        replay = Replay(frozenset(self.wanted), changelogs, held, Findings(self.directory))

        async def lineage_of(version: Version) -> Sequence[LineageItem]:
            return (await changelogs.read(version)).lineage

        return await replay.run(
            LineFinder(dict(self.wanted), frozenset(self.snapshots), lineage_of)
        )

    def _zip(self, version: Version) -> str:
        return f"{STATE}{self.directory}/{version[0]}_{version[1]}.zip"
