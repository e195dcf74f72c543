"""The one table that follows the versions of a state store, and the snapshots opened beside it.

Invariants: whatever is opened has a directory of its own, which is gone once it is closed; as soon
as the content cannot be followed, nothing is held any more; the fingerprint of a table always is
that of its rows.
"""

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.spark.format.changelog import Changelog, Record, RecordKind
from tidelog.table.port import Table
from tidelog.verify.fingerprint import Fingerprint, fingerprint
from tidelog.verify.query.changelogs import Version
from tidelog.verify.query.snapshot import SnapshotFiles, rocks_factory
from tidelog.verify.unit import Workspace

_BATCH: Final = 10_000


class MergesError(Exception):
    """A record appends to a value in a way that only Spark's merge operator knows."""


@dataclass(slots=True)
class ChangingTable:
    """A table under `directory`, and the fingerprint of its rows."""

    table: Table
    directory: Path
    fingerprint: Fingerprint

    def close(self) -> None:
        """Close it and remove its files."""
        self.table.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def apply(self, records: Iterable[Record]) -> None:
        """Apply a changelog; raises MergesError, after which the table is of no use."""
        newest: dict[bytes, bytes | None] = {}
        for record in records:
            match record.kind:
                case RecordKind.MERGE:
                    raise MergesError
                case RecordKind.DELETE_RANGE:
                    self._write(newest)
                    rows = self.table.scan(record.key, record.value or b"")
                    newest = dict.fromkeys(key for key, _ in rows)
                case _:
                    newest[record.key] = record.value
            if len(newest) >= _BATCH:
                self._write(newest)
                newest = {}
        self._write(newest)

    def _write(self, newest: dict[bytes, bytes | None]) -> None:
        if not newest:
            return
        keys = sorted(newest)
        values = [newest[key] for key in keys]
        olds = zip(keys, self.table.get_many(keys), strict=True)
        old = fingerprint((key, value) for key, value in olds if value is not None)
        news = zip(keys, values, strict=True)
        new = fingerprint((key, value) for key, value in news if value is not None)
        self.fingerprint += new - old
        self.table.write(keys, values)


MERGES: Final = "it appends to values, which only Spark can follow"


@dataclass(slots=True)
class FollowedTable:
    """What the changelogs have made; `objects` are the snapshots by version."""

    workspace: Workspace
    snapshots: SnapshotFiles
    objects: Mapping[Version, str]
    unfollowable: str | None
    """Why only Spark can say what the changelogs make."""
    table: ChangingTable | None = None
    """The rows; None while they are not known."""
    _directories: int = 0

    @property
    def fingerprint(self) -> Fingerprint | None:
        """The fingerprint of the rows of the table; None while there is none."""
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
        table = await self.workspace.effects.offload.run(rocks_factory().create, directory)
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
            await self.workspace.effects.offload.run(self.table.apply, changelog.records)
        except MergesError:
            await self.stop_following(MERGES)

    async def stop_following(self, why: str) -> None:
        """From here on the content is not known."""
        self.unfollowable = self.unfollowable or why
        await self.let_go()

    async def let_go(self) -> None:
        """Close the table that is held, if there is one."""
        if self.table is not None:
            table, self.table = self.table, None
            await self.close(table)

    async def close(self, table: ChangingTable) -> None:
        """Close a table and remove its files."""
        await self.workspace.effects.offload.run(table.close)

    def _directory(self) -> Path:
        self._directories += 1
        return self.workspace.directory / str(self._directories)
