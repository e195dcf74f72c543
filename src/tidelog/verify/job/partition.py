"""One partition of checkpoints: what the paths to its state have made, compared.

Invariants: damage is a finding that names the object and the checkpoints; the path from an older
materialization is judged only when the partition itself is sound, and damage on that path is
reported by the partition that it belongs to.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tidelog.checkpoint.finding import Finding
from tidelog.checkpoint.manifest import StateInfo, SubtaskState
from tidelog.checkpoint.retention import subtask_objects
from tidelog.checkpoint.sizes import replay_changes
from tidelog.errors import TidelogError
from tidelog.ids import Slot, SubtaskId
from tidelog.verify.fingerprint import combined, differing
from tidelog.verify.job.paths import OLDER_IS_DAMAGED, AlternateHistory
from tidelog.verify.results import (
    CheckName,
    PathResult,
    Redundancy,
    Restored,
    UnitResult,
    finding_of,
)

_SHOWN_GROUPS = 8


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
        return str(SubtaskId(self.operator, self.state.index))

    def judged(self, direct: PathResult, other: PathResult | None) -> UnitResult:
        """What its paths have made, compared; `other` is that from the older materialization."""
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
            changes=replay_changes(self.state),
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
            CheckName.REDUNDANCY,
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
                CheckName.ROWS,
                where,
                violation.expected,
                violation.found,
                (self.label,),
                doubtful=self.checkpoints,
            )

    def _unreadable(self, error: TidelogError) -> Finding:
        names = subtask_objects(self.state) | set(self.files.values())
        return finding_of(error, names, partition=self.label, unusable=self.checkpoints)
