"""One Spark state store: its versions made one after the other, from snapshots and changelogs.

Invariants: what is known without reading the store is all in the unit, so it can be checked
anywhere; a version counts only when all before it, back to a snapshot, were read and applied; every
snapshot on the way is compared with what was made without it. Which batches a finding costs becomes
known while the versions are made: it stays open until something takes its place, and every batch
that is reached meanwhile is counted to it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tidelog.checkpoint.finding import UNREADABLE, Finding
from tidelog.checkpoint.invariants import Invariant
from tidelog.engines import Workspace
from tidelog.errors import RestoreError, TidelogError
from tidelog.options.units import plural
from tidelog.spark.checkpoint.checkpoint import STATE
from tidelog.spark.checkpoint.loading import Loading, Version
from tidelog.spark.format.changelog import Changelog, UnreadableCodecError
from tidelog.spark.format.damage import damaged
from tidelog.spark.format.index import IndexEntry
from tidelog.verify.fingerprint import Fingerprint
from tidelog.verify.query.files import Changelogs, CheckedFiles
from tidelog.verify.query.table import ChangingTable, FollowedTable
from tidelog.verify.query.version_chain import (
    INTERRUPTED,
    ONLY_ONE,
    VersionChain,
    VersionChainFinder,
)
from tidelog.verify.results import CheckName, Redundancy, RestoredPartition, UnitResult, finding_of

FALL_BACK: Final = (
    "bring the object back from a backup; until then Spark has to fall back to an older snapshot"
)
TWO_WAYS: Final = (
    "one of the two is wrong; restart the query from a batch that neither concerns, or compare "
    "both with expected values: docs/guides/verify.md"
)


@dataclass(slots=True)
class _Tally:
    """A finding, and the batches counted to it so far."""

    finding: Finding
    unusable: list[int] = field(default_factory=list)
    doubtful: list[int] = field(default_factory=list)


@dataclass(slots=True)
class StoreFindings:
    """All findings of the state store `label`."""

    label: str
    _all: list[_Tally] = field(default_factory=list)
    _breaks: list[_Tally] = field(default_factory=list)
    _passed_over: list[_Tally] = field(default_factory=list)
    _doubts: list[_Tally] = field(default_factory=list)

    def breaks(self, error: TidelogError) -> None:
        """Nothing can be restored from here to the next whole snapshot."""
        self._open(self._breaks, error)

    def passed_over(self, error: TidelogError) -> None:
        """The replay goes on without a snapshot, or without a changelog in an unreadable codec."""
        action = error.action if isinstance(error, UnreadableCodecError) else FALL_BACK
        self._open(self._passed_over, error, action=action)

    def contradicts(self, error: TidelogError, check: CheckName, so_far: list[int]) -> None:
        """Two ways disagree: all batches from now on and those in `so_far` are doubtful."""
        tally = self._open(self._doubts, error, check=check, action=TWO_WAYS)
        tally.doubtful += so_far

    def whole_snapshot(self) -> None:
        """What comes now can be restored from here."""
        self._breaks, self._passed_over = [], []

    def lost(self, batch: int) -> None:
        """Count a batch that cannot be restored to the findings that cost it."""
        for tally in (*self._breaks, *self._passed_over):
            tally.unusable.append(batch)

    def restored(self, batch: int) -> None:
        """Count a batch that can be restored to the findings that leave it doubtful."""
        for tally in (*self._passed_over, *self._doubts):
            tally.doubtful.append(batch)

    def refused(self, batch: int, error: TidelogError) -> None:
        """Spark does not load a batch, whether its rows could be made here or not."""
        doubts = []
        for tally in self._all:
            if batch in tally.unusable:
                return
            if batch in tally.doubtful and tally.finding.action == FALL_BACK:
                doubts.append(tally)
        for tally in doubts:
            tally.doubtful.remove(batch)
            tally.unusable.append(batch)
        if not doubts:
            matches = (tally for tally in self._all if tally.finding.where in error.what)
            tally = next(matches, None) or self._open([], error, check=CheckName.LINEAGE)
            tally.unusable.append(batch)

    def findings(self) -> Iterator[Finding]:
        """All findings, once every version was reached."""
        for tally in self._all:
            doubtful = tuple(sorted({*tally.doubtful}))
            unusable = tuple(sorted({*tally.unusable}))
            finding = replace(tally.finding, unusable=unusable, doubtful=doubtful)
            helps = doubtful or finding.action != FALL_BACK
            yield finding if helps else replace(finding, action=None)

    def _open(
        self,
        kind: list[_Tally],
        error: TidelogError,
        *,
        check: str = Invariant.READABLE,
        action: str | None = None,
    ) -> _Tally:
        finding = finding_of(error, check=check, partition=self.label)
        tally = _Tally(replace(finding, action=action))
        kind.append(tally)
        self._all.append(tally)
        return tally


@dataclass(frozen=True, slots=True)
class StateStoreUnit:
    """A state store that retained batches name."""

    directory: str
    """Such as `0/3` or `1/3/left-keyToNumValues`."""
    retained_versions: tuple[Version, ...]
    """Versions of the store that the commits of retained batches name."""
    changelogs: Mapping[Version, IndexEntry | None]
    """Where the changelog of a version lies; None: in a file."""
    snapshots: tuple[Version, ...]
    sizes: Mapping[str, int]
    """Bytes of all files below its directory."""
    unfollowable: str | None = None
    """Why only Spark can say what its changelogs make."""

    @property
    def weight(self) -> int:
        """Bytes of its snapshots and changelogs."""
        in_log = sum(entry.bytes for entry in self.changelogs.values() if entry is not None)
        return in_log + sum(self.sizes.values())

    async def run(self, workspace: Workspace) -> UnitResult:
        files = CheckedFiles(workspace.store, self.sizes)
        offload = workspace.effects.offload
        changelogs = Changelogs(files, offload, self.directory, self.changelogs)
        objects = {v: f"{STATE}{self.directory}/{v[0]}_{v[1]}.zip" for v in self.snapshots}
        followed = FollowedTable(workspace, files, objects, self.unfollowable)
        findings, snapshots = StoreFindings(self.directory), frozenset(self.snapshots)
        replay = Replay(frozenset(self.retained_versions), changelogs, followed, findings)
        restored = await replay.run(
            VersionChainFinder(dict(self.retained_versions), snapshots, changelogs)
        )
        loading = Loading(self.directory, snapshots, changelogs.lineage)
        for version in self.retained_versions:
            error = await why_not_loaded(version, loading, changelogs, followed)
            if error is not None:
                findings.refused(version[0] - 1, error)
        return UnitResult(restored, tuple(findings.findings()), coverage=files.coverage)


async def why_not_loaded(
    version: Version, loading: Loading, changelogs: Changelogs, followed: FollowedTable
) -> TidelogError | None:
    """Why Spark cannot load a version; damaged snapshots that it does not need are passed over."""
    try:
        while True:
            bad = frozenset(
                snapshot
                for snapshot, error in followed.snapshot_errors.items()
                if error is not None
            )
            path = await loading.path(version, bad)
            for changelog in path.changelogs:
                await changelogs.lineage(changelog)
            if path.base is None or path.base in followed.snapshot_errors:
                return None
            await followed.try_out(path.base)
    except UnreadableCodecError:
        return None  # Spark reads it.
    except UNREADABLE as error:
        return error


COMPRESSED: Final = "a changelog is compressed in a way that is not read here"


@dataclass(slots=True)
class Replay:
    """Makes the versions of a state store."""

    retained_versions: frozenset[Version]
    changelogs: Changelogs
    followed: FollowedTable
    findings: StoreFindings
    _restorable: bool = False
    _changes: int = 0
    _redundancy: Redundancy = "not checked"
    _reason: str = ONLY_ONE
    """Why redundancy is not checked."""
    _unconfirmed: list[int] = field(default_factory=list)
    """Batches restored after `_confirmed`."""
    _confirmed: Version | None = None
    """The last version that two ways have made alike."""
    _forgiven: int = 0
    """The version of a damaged base: changelogs up to it may be missing."""
    _restored: list[RestoredPartition] = field(default_factory=list)

    async def run(self, finder: VersionChainFinder) -> tuple[RestoredPartition, ...]:
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
        return tuple(self._restored)

    async def _start(self, finder: VersionChainFinder) -> VersionChain:
        """Find the chain and make its base."""
        bad: list[Version] = []
        while (chain := await finder.find(frozenset(bad))).start is not None:
            replayed = await self._made_by(chain.alternate)
            base = await self._open(chain.start)
            if base is None:
                await self.followed.close()
            else:
                await self._go_on_from(base)
                self._compare(chain.start, replayed, base.fingerprint)
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
            await self._go_on_from(await self.followed.open(None))
        return chain

    async def _made_by(self, alternate: VersionChain | str) -> Fingerprint | None:
        """What another way makes of the base; damage on it is reported where a batch needs it."""
        if isinstance(alternate, str):
            self._reason = alternate
            return None
        try:
            await self.followed.follow(await self.followed.open(alternate.start))
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
        never_stored = version not in self.changelogs.entries and version in self.followed.objects
        return never_stored or version[0] <= self._forgiven

    def _check_lineage(
        self, before: Version | None, version: Version, changelog: Changelog
    ) -> None:
        if before is None or not changelog.lineage:
            return
        last = changelog.lineage[-1]
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
        replayed = self.followed.fingerprint
        if not self._restorable:
            await self._go_on_from(snapshot)
        elif replayed is None:
            await self.followed.discard(snapshot)
        else:
            self._compare(version, replayed, snapshot.fingerprint)
            if replayed == snapshot.fingerprint:
                await self.followed.discard(snapshot)
            else:
                await self._go_on_from(snapshot)

    def _compare(
        self, version: Version, replayed: Fingerprint | None, snapshot_fingerprint: Fingerprint
    ) -> None:
        """Note whether a snapshot holds what was made without it."""
        if replayed == snapshot_fingerprint:
            self._redundancy = "equal" if self._redundancy == "not checked" else self._redundancy
            self._unconfirmed, self._confirmed = [], version
        elif replayed is not None:
            error = damaged(
                f"object {self.followed.objects[version]}",
                f"the {plural(replayed.rows, 'row')} that the snapshot before it and the "
                "changelogs make",
                f"{plural(snapshot_fingerprint.rows, 'row')}, and not the same",
            )
            self._redundancy = "different"
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
        if self._redundancy == "equal":
            self._redundancy = "not checked"
        await self.followed.follow(base)

    def _reach(self, version: Version) -> None:
        """A version is made, if it can be."""
        if version not in self.retained_versions:
            return
        batch = version[0] - 1
        if not self._restorable:
            self.findings.lost(batch)
            return
        self.findings.restored(batch)
        if version != self._confirmed:
            self._unconfirmed.append(batch)
        unchecked = self._redundancy == "not checked"
        self._restored.append(
            RestoredPartition(
                partition=self.findings.label,
                operator=self.findings.label.partition("/")[0],
                checkpoints=(batch,),
                changes=self._changes,
                fingerprint=self.followed.fingerprint,
                redundancy=self._redundancy,
                reason=(self.followed.unfollowable or self._reason) if unchecked else None,
            )
        )
