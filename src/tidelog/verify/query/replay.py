"""The versions of one Spark state store, made one after the other.

Invariants: a version counts only when all before it, back to a snapshot, were read and applied;
every snapshot on the way is compared with what was made without it; nothing is kept but the table
in use.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tidelog.errors import ConfigError, RestoreError, TidelogError
from tidelog.spark.format.changelog import Changelog
from tidelog.spark.format.damage import damaged
from tidelog.verify.bench import Bench, Redundancy, Restored, UnitResult
from tidelog.verify.fingerprint import Fingerprint
from tidelog.verify.problems import UNREADABLE, Check
from tidelog.verify.query.changelogs import Changelogs, Version
from tidelog.verify.query.changes import ChangingTable, MergesError
from tidelog.verify.query.findings import Findings
from tidelog.verify.query.line import Line, LineFinder
from tidelog.verify.query.snapshot import SnapshotFiles
from tidelog.verify.tables import rocks_factory

ONLY_ONE: Final = "only one snapshot"
MERGES: Final = "it appends to values, which only Spark can follow"
COMPRESSED: Final = "a changelog is compressed in a way that is not read here"


@dataclass(slots=True)
class Replay:
    """Makes the versions of a state store; `objects` are its snapshots by version."""

    bench: Bench
    wanted: frozenset[Version]
    changelogs: Changelogs
    snapshots: SnapshotFiles
    objects: Mapping[Version, str]
    findings: Findings
    unfollowable: str | None
    """Why what the changelogs make cannot be told without Spark."""
    _table: ChangingTable | None = None
    """What the changelogs have made; None while that is not known."""
    _restorable: bool = False
    _changes: int = 0
    _way: Redundancy = "not checked"
    _unconfirmed: list[int] = field(default_factory=list)
    """Batches made since two ways agreed ..."""
    _confirmed: Version | None = None
    """... on this version."""
    _restored: list[Restored] = field(default_factory=list)
    _directories: int = 0

    async def run(self, finder: LineFinder) -> UnitResult:
        """Make all versions of the line; raises errors that are no finding."""
        try:
            line = await self._start(finder)
            before = line.start
            if before is not None:
                self._reach(before)
            for version in line.versions:
                await self._follow(before, version)
                if version in self.objects:
                    await self._meet(version)
                self._reach(version)
                before = version
        finally:
            await self._let_go()
        return UnitResult(tuple(self._restored), tuple(self.findings.problems()))

    async def _start(self, finder: LineFinder) -> Line:
        """Find the line and make its base."""
        bad: list[Version] = []
        while (line := await finder.find(frozenset(bad))).start is not None:
            base = await self._open(line.start)
            if base is not None:
                await self._go_on_from(base)
                return line
            bad.append(line.start)
        if line.broken is not None and bad:
            # What would lead to the damaged snapshot from before may be cleaned up.
            return line.behind(bad[0])
        if line.broken is not None:
            self.findings.breaks(line.broken, line.base)
        else:
            await self._go_on_from(await self._empty())
        return line

    async def _follow(self, before: Version | None, version: Version) -> None:
        """Apply the changelog of a version."""
        try:
            changelog = await self.changelogs.read(version)
        except UNREADABLE as error:
            await self._break(version, error)
        except ConfigError as error:
            self.findings.passed_over(error, _batch(version))
            await self._stop_following(COMPRESSED)
        else:
            self._check_lineage(before, version, changelog)
            self._changes += len(changelog.records)
            await self._apply(changelog)

    async def _apply(self, changelog: Changelog) -> None:
        if self._table is None:
            return
        try:
            await self.bench.effects.offload.run(self._table.apply, changelog.records)
        except MergesError:
            await self._stop_following(MERGES)

    async def _break(self, version: Version, error: TidelogError) -> None:
        """A changelog is missing or damaged."""
        self._restorable = False
        await self._let_go()
        never_stored = version not in self.changelogs.known and isinstance(error, RestoreError)
        # With a snapshot of the same version nothing needs the changelog.
        if not (never_stored and version in self.objects):
            self.findings.breaks(error, _batch(version))

    def _check_lineage(self, before: Version | None, version: Version, found: Changelog) -> None:
        if before is None or not found.lineage:
            return
        last = found.lineage[-1]
        if (last.version, last.checkpoint_unique_id) != before:
            error = damaged(
                f"object {self.changelogs.where(version)}",
                f"a lineage that ends with {before[0]}_{before[1]}, as the commits say",
                f"{last.version}_{last.checkpoint_unique_id}",
            )
            self.findings.contradicts(error, Check.LINEAGE, _batch(version), [])

    async def _meet(self, version: Version) -> None:
        """Compare with the snapshot of a version, or go on from it."""
        snapshot = await self._open(version)
        if snapshot is None:
            return
        self.findings.whole_snapshot()
        if not self._restorable:
            await self._go_on_from(snapshot)
        elif self._table is None:
            await self._close(snapshot)
        elif self._table.fingerprint == snapshot.fingerprint:
            self._way = "equal" if self._way == "not checked" else self._way
            self._unconfirmed, self._confirmed = [], version
            await self._close(snapshot)
        else:
            made, stored = self._table.fingerprint.rows, snapshot.fingerprint.rows
            error = damaged(
                f"object {self.objects[version]}",
                f"the {made} rows that the snapshot before it and the changelogs make",
                f"{stored} rows, and not the same",
            )
            self._way = "different"
            self.findings.contradicts(error, Check.REDUNDANCY, _batch(version), self._unconfirmed)
            await self._go_on_from(snapshot)

    async def _open(self, version: Version) -> ChangingTable | None:
        """The snapshot of a version; None, and a finding, when it is damaged."""
        directory = self._directory()
        try:
            table, rows = await self.snapshots.open(self.objects[version], directory)
        except UNREADABLE as error:
            # While nothing can be restored, it is one more thing in the way.
            tell = self.findings.passed_over if self._restorable else self.findings.breaks
            tell(error, _batch(version))
            return None
        if rows is None:
            await self._stop_following(MERGES)
        return ChangingTable(table, directory, rows or Fingerprint())

    async def _empty(self) -> ChangingTable:
        directory = self._directory()
        table = await self.bench.effects.offload.run(rocks_factory().create, directory)
        return ChangingTable(table, directory, Fingerprint())

    async def _go_on_from(self, base: ChangingTable) -> None:
        await self._let_go()
        self.findings.whole_snapshot()
        self._restorable = True
        if self._way == "equal":
            self._way = "not checked"
        if self.unfollowable is None:
            self._table = base
        else:
            await self._close(base)

    async def _stop_following(self, why: str) -> None:
        self.unfollowable = self.unfollowable or why
        await self._let_go()

    async def _let_go(self) -> None:
        if self._table is not None:
            table, self._table = self._table, None
            await self._close(table)

    async def _close(self, table: ChangingTable) -> None:
        await self.bench.effects.offload.run(table.close)

    def _reach(self, version: Version) -> None:
        """A version is made, if it can be."""
        if version not in self.wanted:
            return
        batch = _batch(version)
        if not self._restorable:
            self.findings.lost(batch)
            return
        self.findings.restored(batch)
        if version != self._confirmed:
            self._unconfirmed.append(batch)
        self._restored.append(
            Restored(
                partition=self.findings.label,
                operator=self.findings.label.partition("/")[0],
                checkpoints=(batch,),
                changes=self._changes,
                fingerprint=self._table.fingerprint if self._table is not None else None,
                redundancy=self._way,
                reason=self._reason(),
            )
        )

    def _reason(self) -> str | None:
        return (self.unfollowable or ONLY_ONE) if self._way == "not checked" else None

    def _directory(self) -> Path:
        self._directories += 1
        return self.bench.directory / str(self._directories)


def _batch(version: Version) -> int:
    """The batch that makes a version."""
    return version[0] - 1
