"""One partition of checkpoints: the paths to its states are replayed and compared.

Invariants: damage is a finding that names the object and the checkpoints; the path over an older
materialization is judged only when the partition itself is sound, and damage on that path is
reported by the partition that it belongs to.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tidelog.changelog.reader import SegmentReader
from tidelog.checkpoint.finding import UNREADABLE, Finding
from tidelog.checkpoint.manifest import StateInfo, SubtaskState
from tidelog.checkpoint.retention import subtask_objects
from tidelog.checkpoint.sizes import layer_bytes
from tidelog.errors import TidelogError
from tidelog.ids import KeyGroup, Slot, SubtaskId
from tidelog.state.key_groups import KeyGroupRange
from tidelog.verify.findings import Check, finding_of
from tidelog.verify.fingerprint import combined, differing
from tidelog.verify.job.alternate_history import OLDER_IS_DAMAGED, AlternateHistory
from tidelog.verify.job.path_replayer import PathReplayer
from tidelog.verify.job.restore_path import PathTree, RestorePath, path_trees
from tidelog.verify.job.restoring import BOUNDS, Restoring
from tidelog.verify.job.rows import RowScan
from tidelog.verify.job.scanned_table import ScannedTable
from tidelog.verify.unit import PathResult, Redundancy, Restored, UnitResult, Workspace

_SHOWN_GROUPS = 8


@dataclass(frozen=True, slots=True)
class Base:
    """The state of one subtask below its own log, and the paths that begin there."""

    operator: str
    state: SubtaskState
    files: Mapping[str, str]
    """The objects that hold the files of its materialization, by the files' names."""
    key_groups: int
    states: tuple[StateInfo, ...]
    paths: tuple[RestorePath, ...]

    def scan(self) -> RowScan:
        """A scan of its table that has taken nothing yet."""
        first, last = self.state.first_key_group, self.state.last_key_group
        owned = KeyGroupRange(KeyGroup(first), KeyGroup(last))
        return RowScan(self.key_groups, owned, self.states)

    @property
    def weight(self) -> int:
        """Bytes of its table and of the log of its paths."""
        log = {step.log: step.stored_bytes for path in self.paths for step in path.steps}
        return sum(map(layer_bytes, self.state.layers)) + sum(log.values())


@dataclass(frozen=True, slots=True)
class PartitionUnit:
    """Paths to states of one subtask; a file that several of the tables need is read once."""

    subtask: SubtaskId
    bases: tuple[Base, ...]

    @property
    def label(self) -> str:
        """Operator and subtask."""
        return str(self.subtask)

    @property
    def weight(self) -> int:
        """Table files and log of all paths."""
        return sum(base.weight for base in self.bases)

    async def check(self, workspace: Workspace) -> UnitResult:
        """Replay all paths; raises errors that are no finding."""
        found: dict[RestorePath, PathResult] = {}
        kind = self.bases[0].state.table
        try:
            restoring = Restoring.of(workspace, self.label, kind, staged=len(self.bases) > 1)
        except UNREADABLE as error:
            paths = [path for base in self.bases for path in base.paths]
            return UnitResult(paths=tuple(path.failed(error) for path in paths))
        try:
            for base in self.bases:
                found |= await _replay(base, restoring)
        finally:
            await restoring.close()
        return UnitResult(paths=tuple(found.values()))


async def _replay(base: Base, restoring: Restoring) -> dict[RestorePath, PathResult]:
    """What the paths from one table make."""
    workspace = restoring.workspace
    reader = SegmentReader(workspace.store, 0, BOUNDS.concurrency)
    found: dict[RestorePath, PathResult] = {}
    todo, scan = path_trees(base.paths), None
    while todo:
        replayer = PathReplayer(todo.pop(), base.state.upto, reader, workspace.effects.offload)
        try:
            async with restoring.table(base.state, base.files) as table:
                scanned = ScannedTable(table, base.scan() if scan is None else scan.copy())
                scanned.known = scan is not None
                scan = await workspace.effects.offload.run(scanned.rows)
                await replayer.run(scanned, restoring.what)
        except UNREADABLE as error:
            replayer.failed(error)
        found |= replayer.found
        todo += [PathTree(path) for path in replayer.left]
    return found


@dataclass(frozen=True, slots=True)
class Partition:
    """A subtask's state as some checkpoints hold it alike."""

    checkpoints: tuple[Slot, ...]
    operator: str
    key_groups: int
    states: tuple[StateInfo, ...]
    state: SubtaskState
    files: Mapping[str, str]
    """The objects that hold the files of its materialization, by the files' names."""
    alternate: AlternateHistory | str
    """Another path to the same state, or why there is none."""
    older: tuple[Slot, ...]
    """The checkpoints whose materialization the other path starts from."""
    older_files: Mapping[str, str]
    """The objects of the files of that materialization, by the files' names."""

    @property
    def label(self) -> str:
        """Operator and subtask."""
        return str(self.subtask)

    @property
    def subtask(self) -> SubtaskId:
        """Whose state it is."""
        return SubtaskId(self.operator, self.state.index)

    def judged(self, direct: PathResult, other: PathResult | None) -> UnitResult:
        """What its paths have made, compared; `other` is that over the older materialization."""
        if direct.error is not None:
            return UnitResult(findings=(self._unreadable(direct.error),))
        findings = [*self._violations(direct)]
        redundancy: Redundancy = "not checked"
        reason: str | None = OLDER_IS_DAMAGED
        if not isinstance(self.alternate, AlternateHistory):
            reason = self.alternate
        elif other is not None and other.error is None:
            groups = differing(direct.groups, other.groups)
            redundancy, reason = ("different" if groups else "equal"), None
            if groups:
                findings.append(self._contradiction(self.alternate, groups))
        restored = Restored(
            partition=self.label,
            operator=self.operator,
            checkpoints=self.checkpoints,
            changes=sum(layer.seqno - layer.upto for layer in self.state.layers),
            fingerprint=combined(direct.groups.values()),
            redundancy=redundancy,
            reason=reason,
        )
        return UnitResult((restored,), tuple(findings))

    def _contradiction(self, alternate: AlternateHistory, groups: list[int]) -> Finding:
        assert self.state.materialization is not None
        ref = alternate.older.materialization
        start = f"materialization {ref.descriptor}" if ref else "no materialization"
        shown = ", ".join(map(str, groups[:_SHOWN_GROUPS]))
        more = f" and {len(groups) - _SHOWN_GROUPS} more" if len(groups) > _SHOWN_GROUPS else ""
        return Finding(
            Check.REDUNDANCY,
            self.state.materialization.descriptor,
            f"the state that {start} of slot {alternate.slot} makes with the log above it",
            f"other rows in key groups {shown}{more}",
            (self.label,),
            doubtful=tuple(sorted({*self.checkpoints, *self.older})),
            action="one of the two is wrong; restore a checkpoint that uses neither, or compare "
            "both with expected values: docs/guides/verify.md",
        )

    def _violations(self, direct: PathResult) -> Iterator[Finding]:
        for violation in direct.violations:
            ref = self.state.materialization
            where = f"the table of {self.label}" + (f", {ref.descriptor} and log" if ref else "")
            yield Finding(
                Check.ROWS,
                where,
                violation.expected,
                violation.found,
                (self.label,),
                doubtful=self.checkpoints,
            )

    def _unreadable(self, error: TidelogError) -> Finding:
        names = subtask_objects(self.state) | set(self.files.values())
        return finding_of(error, names, partition=self.label, unusable=self.checkpoints)
