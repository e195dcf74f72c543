"""The one table that follows the versions of a state store, and the snapshots opened beside it.

Invariants: whatever is opened has a directory of its own, which is gone once it is closed; as soon
as the content cannot be followed, nothing is held any more.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.spark.format.changelog import Changelog
from tidelog.verify.bench import Bench
from tidelog.verify.fingerprint import Fingerprint
from tidelog.verify.query.changelogs import Version
from tidelog.verify.query.changes import ChangingTable, MergesError
from tidelog.verify.query.snapshot import SnapshotFiles
from tidelog.verify.tables import rocks_factory

MERGES: Final = "it appends to values, which only Spark can follow"


@dataclass(slots=True)
class Held:
    """What the changelogs have made; `objects` are the snapshots by version."""

    bench: Bench
    snapshots: SnapshotFiles
    objects: Mapping[Version, str]
    unfollowable: str | None
    """Why what the changelogs make cannot be told without Spark."""
    table: ChangingTable | None = None
    """None while its content is not known."""
    _directories: int = 0

    @property
    def fingerprint(self) -> Fingerprint | None:
        """Of its rows."""
        return self.table.fingerprint if self.table is not None else None

    async def open(self, version: Version) -> ChangingTable:
        """The snapshot of a version, to be held or closed; raises as `SnapshotFiles.open`."""
        directory = self._directory()
        table, rows = await self.snapshots.open(self.objects[version], directory)
        if rows is None:
            await self.stop_following(MERGES)
        return ChangingTable(table, directory, rows or Fingerprint())

    async def empty(self) -> ChangingTable:
        """A table without rows, to be held."""
        directory = self._directory()
        table = await self.bench.effects.offload.run(rocks_factory().create, directory)
        return ChangingTable(table, directory, Fingerprint())

    async def hold(self, table: ChangingTable) -> None:
        """Go on with this table instead."""
        await self.let_go()
        if self.unfollowable is None:
            self.table = table
        else:
            await self.close(table)

    async def apply(self, changelog: Changelog) -> None:
        """Apply the next changelog, if anything is held."""
        if self.table is None:
            return
        try:
            await self.bench.effects.offload.run(self.table.apply, changelog.records)
        except MergesError:
            await self.stop_following(MERGES)

    async def stop_following(self, why: str) -> None:
        """From here on the content is not known."""
        self.unfollowable = self.unfollowable or why
        await self.let_go()

    async def let_go(self) -> None:
        """Close what is held."""
        if self.table is not None:
            table, self.table = self.table, None
            await self.close(table)

    async def close(self, table: ChangingTable) -> None:
        """Close a table and remove its files."""
        await self.bench.effects.offload.run(table.close)

    def _directory(self) -> Path:
        self._directories += 1
        return self.bench.directory / str(self._directories)
