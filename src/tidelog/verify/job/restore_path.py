"""The paths to states of one subtask: a materialization, and parts of logs applied to it in order.

Invariants: a pure function of manifests; a path makes exactly the state that its checkpoint names;
what several paths from one materialization have in common is in one tree, so it is read once.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.manifest import SubtaskState
from tidelog.errors import TidelogError
from tidelog.ids import SeqNo
from tidelog.verify.job.alternate_history import AlternateHistory
from tidelog.verify.job.rows import RowScan
from tidelog.verify.unit import PathResult

_SIDE_BYTES: Final = 4 << 20
"""A path that leaves the others for more log than this is replayed by itself."""


@dataclass(frozen=True, slots=True)
class Step:
    """A part of a log; of its changes those from `end` on do not count (None: all count)."""

    log: LogRange | bytes
    """Bytes are a block that lies in a manifest."""
    end: SeqNo | None = None

    @property
    def stored_bytes(self) -> int:
        """Bytes that are read for it."""
        return self.log.length if isinstance(self.log, LogRange) else 0


@dataclass(frozen=True, slots=True)
class RestorePath:
    """From a materialization to the state of partition number `partition` of a plan."""

    partition: int
    alternate: bool
    """Whether the path begins at an older materialization than the one its checkpoint names."""
    steps: tuple[Step, ...]
    seqno: SeqNo
    """The state is that after the changes below."""

    def made(self, rows: RowScan) -> PathResult:
        """The result when these are the rows of the state."""
        violations = tuple(rows.violations.values())
        return PathResult(self.partition, self.alternate, rows.groups, violations)

    def failed(self, error: TidelogError) -> PathResult:
        """The result when the path cannot be replayed."""
        return PathResult(self.partition, self.alternate, error=error)


@dataclass(frozen=True, slots=True)
class Branch:
    """A path that shares its first `after` steps with a trunk."""

    path: RestorePath
    after: int

    @property
    def own(self) -> tuple[Step, ...]:
        """The steps that the trunk does not take; without any it ends at a change of the trunk."""
        return self.path.steps[self.after :]


@dataclass(frozen=True, slots=True)
class PathTree:
    """Paths that are replayed together; the trunk is the longest, and is no branch."""

    trunk: RestorePath
    branches: tuple[Branch, ...] = ()


def base_of(state: SubtaskState) -> SubtaskState:
    """The state below the subtask's own log; equal for checkpoints that begin with equal tables."""
    return msgspec.structs.replace(table_of(state), log=(), inline=(), seqno=state.upto)


def table_of(state: SubtaskState) -> SubtaskState:
    """What of a subtask's state its table is made of."""
    return msgspec.structs.replace(
        state,
        watermark=None,
        transactions=(),
        finished=False,
        advancing=None,
        in_flight=None,
        barrier=None,
        updates=0,
    )


def direct_path(partition: int, state: SubtaskState) -> RestorePath:
    """The path of a restore."""
    return RestorePath(partition, False, _steps(state), state.seqno)


def alternate_path(partition: int, history: AlternateHistory) -> RestorePath:
    """The path over an older materialization: the older log, then the newer one."""
    older, newer = history.older, history.newer
    meeting = older.seqno
    common = set(newer.log)
    for number, part in enumerate(older.log):
        # Going over early is as good, and what follows is shared with the newer chain's own path.
        if part in common and part.first <= meeting:
            begun = [Step(each) for each in older.log[:number]]
            rest = _steps(newer)[newer.log.index(part) :]
            return RestorePath(partition, True, (*begun, *rest), newer.seqno)
    begun = [
        Step(part, meeting if part.end > meeting else None)
        for part in older.log
        if part.first < meeting
    ]
    begun += [Step(block, meeting) for block in older.inline]
    rest = tuple(
        step
        for step in _steps(newer)
        if not isinstance(step.log, LogRange) or step.log.end > meeting
    )
    return RestorePath(partition, True, (*begun, *rest), newer.seqno)


def _steps(state: SubtaskState) -> tuple[Step, ...]:
    return (*(Step(part) for part in state.log), *(Step(block) for block in state.inline))


def path_trees(paths: Iterable[RestorePath]) -> list[PathTree]:
    """Paths from one materialization, those together that have most of their steps in common."""
    left = list(paths)
    found = []
    while left:
        trunk = max(left, key=lambda path: (path.seqno, len(path.steps)))
        branches = [_branch(path, trunk) for path in left if path is not trunk]
        short = [each for each in branches if _bytes(each.own) <= _SIDE_BYTES]
        found.append(PathTree(trunk, tuple(short)))
        left = [each.path for each in branches if _bytes(each.own) > _SIDE_BYTES]
    return found


def _branch(path: RestorePath, trunk: RestorePath) -> Branch:
    after = 0
    for one, other in zip(path.steps, trunk.steps, strict=False):
        if one != other:
            break
        after += 1
    if after < len(path.steps):
        # All that the trunk has taken by then must count for the branch.
        while after and not _counts(path.steps[after - 1], path.seqno):
            after -= 1
    return Branch(path, after)


def _counts(step: Step, seqno: SeqNo) -> bool:
    return isinstance(step.log, LogRange) and step.log.end <= seqno


def _bytes(steps: Iterable[Step]) -> int:
    return sum(step.stored_bytes for step in steps)
