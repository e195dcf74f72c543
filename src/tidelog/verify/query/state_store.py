"""One Spark state store: its versions made one after the other, from snapshots and changelogs.

Invariants: what is known without reading the store is all in the unit, so it can be checked
anywhere; a version counts only when all before it, back to a snapshot, were read and applied; every
snapshot on the way is compared with what was made without it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelog.checkpoint.finding import UNREADABLE
from tidelog.engines import Workspace
from tidelog.errors import RestoreError
from tidelog.spark.checkpoint.checkpoint import STATE
from tidelog.spark.format.changelog import Changelog, LineageItem, UnreadableCodecError
from tidelog.spark.format.damage import damaged
from tidelog.spark.format.index import IndexEntry
from tidelog.verify.fingerprint import Fingerprint
from tidelog.verify.query.files import Changelogs, CheckedFiles, Version
from tidelog.verify.query.findings import StoreFindings
from tidelog.verify.query.table import ChangingTable, FollowedTable, SnapshotFiles
from tidelog.verify.query.version_chain import (
    INTERRUPTED,
    ONLY_ONE,
    VersionChain,
    VersionChainFinder,
)
from tidelog.verify.results import CheckName, Redundancy, Restored, UnitResult


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
    def weight(self) -> int:
        """Bytes of its snapshots and changelogs."""
        in_log = sum(entry.bytes for _, entry in self.changelogs if entry is not None)
        return in_log + sum(size for _, size in self.sizes)

    async def run(self, workspace: Workspace) -> UnitResult:
        sizes = dict(self.sizes)
        files, offload = CheckedFiles(workspace.store, sizes), workspace.effects.offload
        known = dict(self.changelogs)
        changelogs = Changelogs(files, offload, self.directory, known)
        followed = FollowedTable(
            workspace=workspace,
            snapshots=SnapshotFiles(files, offload, self.directory, sizes),
            objects={v: f"{STATE}{self.directory}/{v[0]}_{v[1]}.zip" for v in self.snapshots},
            unfollowable=self.unfollowable,
        )
        replay = Replay(frozenset(self.wanted), changelogs, followed, StoreFindings(self.directory))

        async def lineage_of(version: Version) -> Sequence[LineageItem]:
            return (await changelogs.read(version)).lineage

        first = any(version == 1 for version, _ in known)
        finder = VersionChainFinder(dict(self.wanted), frozenset(self.snapshots), lineage_of, first)
        return await replay.run(finder)


COMPRESSED: Final = "a changelog is compressed in a way that is not read here"


@dataclass(slots=True)
class Replay:
    """Makes the versions of a state store."""

    wanted: frozenset[Version]
    changelogs: Changelogs
    followed: FollowedTable
    findings: StoreFindings
    _restorable: bool = False
    _changes: int = 0
    _way: Redundancy = "not checked"
    _reason: str = ONLY_ONE
    """Why that is so."""
    _unconfirmed: list[int] = field(default_factory=list)
    """Batches made since two ways agreed ..."""
    _confirmed: Version | None = None
    """... on this version."""
    _forgiven: int = 0
    """Up to this version, that of a damaged base, changelogs may be missing."""
    _restored: list[Restored] = field(default_factory=list)

    async def run(self, finder: VersionChainFinder) -> UnitResult:
        """Make all versions of the chain; raises errors that are no finding."""
        try:
            chain = await self._start(finder)
            before = chain.start
            if before is not None:
                self._reach(before)
            for version in chain.versions:
                await self._follow(before, version)
                if version in self.followed.objects:
                    await self._meet(version)
                self._reach(version)
                before = version
        finally:
            await self.followed.close()
        return UnitResult(tuple(self._restored), tuple(self.findings.findings()))

    async def _start(self, finder: VersionChainFinder) -> VersionChain:
        """Find the chain and make its base."""
        bad: list[Version] = []
        while (chain := await finder.find(frozenset(bad))).start is not None:
            made = await self._made_by(chain.alternate)
            base = await self._open(chain.start)
            if base is None:
                await self.followed.close()
            else:
                await self._go_on_from(base)
                self._compare(chain.start, made, base.fingerprint)
                return chain
            bad.append(chain.start)
            # What would lead there from an older one may be cleaned up.
            self._forgiven = bad[0][0]
        if chain.broken is not None and bad:
            return chain.after(bad[0])
        if isinstance(chain.broken, UnreadableCodecError):
            self._restorable = True  # by Spark, which reads what leads to its first version
            await self.followed.stop_following(COMPRESSED)
        elif chain.broken is not None:
            self.findings.breaks(chain.broken)
        else:
            await self._go_on_from(await self.followed.empty())
        return chain

    async def _made_by(self, alternate: VersionChain | str) -> Fingerprint | None:
        """What another way makes of the base; damage on it is reported where a batch needs it."""
        if isinstance(alternate, str):
            self._reason = alternate
            return None
        try:
            older = (
                self.followed.empty()
                if alternate.start is None
                else self.followed.open(alternate.start)
            )
            await self.followed.follow(await older)
            for version in alternate.versions:
                await self.followed.apply(await self.changelogs.read(version))
        except (*UNREADABLE, UnreadableCodecError) as error:
            self._reason = COMPRESSED if isinstance(error, UnreadableCodecError) else INTERRUPTED
            await self.followed.close()
        return self.followed.fingerprint

    async def _follow(self, before: Version | None, version: Version) -> None:
        try:
            changelog = await self.changelogs.read(version)
        except UNREADABLE as error:
            self._restorable = False
            await self.followed.close()
            if not (isinstance(error, RestoreError) and self._can_do_without(version)):
                self.findings.breaks(error)
        except UnreadableCodecError as error:
            self.findings.passed_over(error)
            await self.followed.stop_following(COMPRESSED)
        else:
            self._check_lineage(before, version, changelog)
            self._changes += len(changelog.records)
            await self.followed.apply(changelog)

    def _can_do_without(self, version: Version) -> bool:
        """Whether a missing changelog is no damage."""
        # With a snapshot of the same version nothing needs one that was never stored.
        never_stored = version not in self.changelogs.known and version in self.followed.objects
        return never_stored or version[0] <= self._forgiven

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
            self.findings.contradicts(error, CheckName.LINEAGE, [])

    async def _meet(self, version: Version) -> None:
        """Compare with the snapshot of a version, or go on from it."""
        snapshot = await self._open(version)
        if snapshot is None:
            return
        self.findings.whole_snapshot()
        made = self.followed.fingerprint
        if not self._restorable:
            await self._go_on_from(snapshot)
        elif made is None:
            await self.followed.discard(snapshot)
        else:
            self._compare(version, made, snapshot.fingerprint)
            if made == snapshot.fingerprint:
                await self.followed.discard(snapshot)
            else:
                await self._go_on_from(snapshot)

    def _compare(self, version: Version, made: Fingerprint | None, found: Fingerprint) -> None:
        """Note whether a snapshot holds what was made without it."""
        if made == found:
            self._way = "equal" if self._way == "not checked" else self._way
            self._unconfirmed, self._confirmed = [], version
        elif made is not None:
            error = damaged(
                f"object {self.followed.objects[version]}",
                f"the {made.rows} rows that the snapshot before it and the changelogs make",
                f"{found.rows} rows, and not the same",
            )
            self._way = "different"
            self.findings.contradicts(error, CheckName.REDUNDANCY, self._unconfirmed)

    async def _open(self, version: Version) -> ChangingTable | None:
        """The snapshot of a version; None, and a finding, when it is damaged."""
        try:
            return await self.followed.open(version)
        except UNREADABLE as error:
            # Without anything to go on from it is one more thing in the way.
            note = self.findings.passed_over if self._restorable else self.findings.breaks
            note(error)
            return None

    async def _go_on_from(self, base: ChangingTable) -> None:
        self.findings.whole_snapshot()
        self._restorable = True
        if self._way == "equal":
            self._way = "not checked"
        await self.followed.follow(base)

    def _reach(self, version: Version) -> None:
        """A version is made, if it can be."""
        if version not in self.wanted:
            return
        batch = version[0] - 1
        if not self._restorable:
            self.findings.lost(batch)
            return
        self.findings.restored(batch)
        if version != self._confirmed:
            self._unconfirmed.append(batch)
        unchecked = self._way == "not checked"
        self._restored.append(
            Restored(
                partition=self.findings.label,
                operator=self.findings.label.partition("/")[0],
                checkpoints=(batch,),
                changes=self._changes,
                fingerprint=self.followed.fingerprint,
                redundancy=self._way,
                reason=(self.followed.unfollowable or self._reason) if unchecked else None,
            )
        )
