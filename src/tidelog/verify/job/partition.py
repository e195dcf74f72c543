"""One partition of a checkpoint: restored, read to its last row, and restored again another way.

Invariants: damage is a finding that names the object and the checkpoints; the way over an older
materialization is judged only when the partition itself is sound, and damage on that way is
reported by the partition that it belongs to.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tidelog.checkpoint.finding import UNREADABLE, Finding
from tidelog.checkpoint.manifest import StateInfo, SubtaskState
from tidelog.checkpoint.retention import subtask_objects
from tidelog.checkpoint.sizes import layer_bytes
from tidelog.errors import TidelogError
from tidelog.ids import KeyGroup, Slot, SubtaskId
from tidelog.state.key_groups import KeyGroupRange
from tidelog.verify.findings import Check, finding_of
from tidelog.verify.fingerprint import differing
from tidelog.verify.job.alternate_history import OLDER_IS_DAMAGED, AlternateHistory
from tidelog.verify.job.restoring import Restoring
from tidelog.verify.job.rows import RowScan
from tidelog.verify.unit import Redundancy, Restored, UnitResult, Workspace

_SHOWN_GROUPS = 8


@dataclass(frozen=True, slots=True)
class PartitionUnit:
    """A subtask's state as some checkpoints hold it alike."""

    checkpoints: tuple[Slot, ...]
    operator: str
    key_groups: int
    states: tuple[StateInfo, ...]
    state: SubtaskState
    files: Mapping[str, str]
    """The objects that hold the files of its materialization, by the files' names."""
    alternate: AlternateHistory | str
    """Another way to the same state, or why there is none."""
    older: tuple[Slot, ...]
    """The checkpoints whose materialization the other way starts from."""
    older_files: Mapping[str, str]
    """The objects of the files of that materialization, by the files' names."""

    @property
    def label(self) -> str:
        """Operator and subtask."""
        return str(SubtaskId(self.operator, self.state.index))

    @property
    def weight(self) -> int:
        """Table files and log of both ways."""
        ways = [self.state]
        if isinstance(self.alternate, AlternateHistory):
            ways += [self.alternate.older, self.alternate.newer]
        return sum(map(_bytes, ways))

    async def check(self, workspace: Workspace) -> UnitResult:
        """Restore, read, compare; raises errors that are no finding."""
        restoring = Restoring(workspace, self.label)
        scan = self._scan()
        try:
            async with restoring.table(self.state, self.files) as table:
                await workspace.effects.offload.run(scan.take, table.scan(b"", None))
        except UNREADABLE as error:
            return UnitResult(findings=(self._unreadable(error),))
        findings = [*self._misfits(scan)]
        redundancy, reason, other = await self._compared(restoring, scan)
        if other is not None:
            findings.append(other)
        restored = Restored(
            partition=self.label,
            operator=self.operator,
            checkpoints=self.checkpoints,
            changes=sum(layer.seqno - layer.upto for layer in self.state.layers),
            fingerprint=scan.total,
            redundancy=redundancy,
            reason=reason,
        )
        return UnitResult((restored,), tuple(findings))

    def _scan(self) -> RowScan:
        first, last = self.state.first_key_group, self.state.last_key_group
        owned = KeyGroupRange(KeyGroup(first), KeyGroup(last))
        return RowScan(self.key_groups, owned, self.states)

    async def _compared(
        self, restoring: Restoring, scan: RowScan
    ) -> tuple[Redundancy, str | None, Finding | None]:
        if not isinstance(self.alternate, AlternateHistory):
            return "not checked", self.alternate, None
        other = self._scan()
        older, newer = self.alternate.older, self.alternate.newer
        try:
            async with restoring.table(older, self.older_files, newer) as table:
                await restoring.workspace.effects.offload.run(other.take, table.scan(b"", None))
        except UNREADABLE:
            return "not checked", OLDER_IS_DAMAGED, None
        groups = differing(scan.groups, other.groups)
        if not groups:
            return "equal", None, None
        return "different", None, self._contradiction(self.alternate, groups)

    def _contradiction(self, alternate: AlternateHistory, groups: list[int]) -> Finding:
        assert self.state.materialization is not None
        ref = alternate.older.materialization
        way = f"materialization {ref.descriptor}" if ref else "no materialization"
        shown = ", ".join(map(str, groups[:_SHOWN_GROUPS]))
        more = f" and {len(groups) - _SHOWN_GROUPS} more" if len(groups) > _SHOWN_GROUPS else ""
        return Finding(
            Check.REDUNDANCY,
            self.state.materialization.descriptor,
            f"the state that {way} of slot {alternate.slot} makes with the log above it",
            f"other rows in key groups {shown}{more}",
            (self.label,),
            doubtful=tuple(sorted({*self.checkpoints, *self.older})),
            action="one of the two is wrong; restore a checkpoint that uses neither, or find out "
            "which one with --against",
        )

    def _misfits(self, scan: RowScan) -> Iterator[Finding]:
        for misfit in scan.misfits.values():
            ref = self.state.materialization
            where = f"the table of {self.label}" + (f", {ref.descriptor} and log" if ref else "")
            yield Finding(
                Check.ROWS,
                where,
                misfit.expected,
                misfit.found,
                (self.label,),
                doubtful=self.checkpoints,
            )

    def _unreadable(self, error: TidelogError) -> Finding:
        names = subtask_objects(self.state) | set(self.files.values())
        return finding_of(error, names, partition=self.label, unusable=self.checkpoints)


def _bytes(state: SubtaskState) -> int:
    return sum(map(layer_bytes, state.layers))
