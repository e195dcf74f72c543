"""The paths to states of one subtask: a materialization, and parts of logs applied to it in order.

Invariants: pure reasoning about manifests; a path makes exactly the state that its checkpoint
names. Two chains are joined only where both are known to tell the same history. A generation is one
process that numbers the changes of a partition once, so two chains that both reach change n of one
generation agree below n. What an abandoned generation logged beyond the slot that its successor
restored is never taken for history.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from tidelog.changelog.block import Block, open_block
from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.manifest import SubtaskState
from tidelog.errors import TidelogError
from tidelog.ids import Generation, SeqNo, Slot
from tidelog.storage import object_names
from tidelog.verify.job.rows import RowScan
from tidelog.verify.results import PathResult

NO_MATERIALIZATION = "no materialization: the log alone makes the state"
NO_STATE = "no state: no row was ever written"
INHERITED = "no materialization of its own yet: what it inherited and the log make the state"
ONLY_ONE = "only one materialization"
LOG_IS_CUT = "only one materialization: the log between it and the older one is cut"
OLDER_IS_DAMAGED = "only one materialization: the way from the older one is damaged"


class LogSpan(NamedTuple):
    """The changes of a chain's log; without a log it begins and ends at the materialization."""

    reached: dict[Generation, SeqNo]
    """For every generation that has a part in the chain, up to which of its changes."""
    first: SeqNo
    end: SeqNo


@dataclass(frozen=True, slots=True)
class Chain:
    """A partition as one checkpoint has it: a materialization, or none, and the log above it."""

    slot: Slot
    generation: Generation
    """Generation of the checkpoint's author."""
    state: SubtaskState

    def log(self) -> LogSpan:
        """The span of all log ranges and inline blocks.

        A range may reach beyond the checkpoint: what lies there was written by the same process.
        """
        state, table = self.state, self.state.materialization
        reached, first, end = {self.generation: state.seqno}, state.upto, state.upto
        parts: list[tuple[Generation, LogRange | Block]] = []
        for log_range in state.log:
            parts.append((self._writer(log_range.segment), log_range))
        for data in state.inline:
            parts.append((self.generation, open_block(data, 0, "inline log")))
        for generation, part in parts:
            first, end = min(first, part.first), max(end, part.end)
            reached[generation] = max(part.end, reached.get(generation, part.end))
        if table is not None:
            writer = self._writer(table.descriptor)
            reached[writer] = max(state.upto, reached.get(writer, state.upto))
        return LogSpan(reached, first, end)

    def _writer(self, name: str) -> Generation:
        """The generation that wrote an object."""
        writer = object_names.generation_of(name)
        return self.generation if writer is None else writer


@dataclass(frozen=True, slots=True)
class AlternateHistory:
    """Another way to a partition's state: an older chain up to a change, then the newer log."""

    older: SubtaskState
    """Ends where the newer log goes on."""
    newer: SubtaskState
    """Says to be materialized up to there."""
    slot: Slot
    """The checkpoint that the older chain is of."""


def alternate_history(chain: Chain, candidates: Iterable[Chain]) -> AlternateHistory | str:
    """The way from the newest older materialization among `candidates`, or why there is none.

    `candidates` are chains of the same partition in other checkpoints.
    """
    if chain.state.materialization is None:
        if chain.state.inherited:
            return INHERITED
        return NO_MATERIALIZATION if chain.state.log or chain.state.inline else NO_STATE
    older = [other for other in candidates if other.state.upto < chain.state.upto]
    if not older:
        return ONLY_ONE
    newest_first = sorted(older, key=lambda c: (c.state.upto, c.state.seqno), reverse=True)
    for other in newest_first:
        meeting = _join_point(other, chain)
        if meeting is not None:
            return AlternateHistory(
                msgspec.structs.replace(other.state, seqno=meeting),
                _materialized(chain.state, meeting),
                other.slot,
            )
    return LOG_IS_CUT


def _join_point(older: Chain, newer: Chain) -> SeqNo | None:
    """The change at which one can change from the older chain to the newer chain's log."""
    older_log, newer_log = older.log(), newer.log()
    agreed = 0
    for generation, end in older_log.reached.items():
        agreed = max(agreed, min(end, newer_log.reached.get(generation, 0)))
    meeting = SeqNo(min(newer.state.upto, older_log.end, agreed))
    return meeting if meeting >= newer_log.first else None


def _materialized(state: SubtaskState, upto: SeqNo) -> SubtaskState:
    assert state.materialization is not None
    ref = msgspec.structs.replace(state.materialization, upto=upto)
    return msgspec.structs.replace(state, materialization=ref)


@dataclass(frozen=True, slots=True)
class PathStep:
    """A part of a log; of its changes those from `end` on do not count (None: all count)."""

    log: LogRange | bytes
    """Bytes are a block that lies in a manifest."""
    end: SeqNo | None = None

    @property
    def stored_bytes(self) -> int:
        """Bytes that are read for it; 0 for a block in a manifest."""
        return self.log.length if isinstance(self.log, LogRange) else 0


@dataclass(frozen=True, slots=True)
class RestorePath:
    """From a materialization to the state of partition number `partition` of a plan."""

    partition: int
    alternate: bool
    """Whether the path begins at an older materialization than the one its checkpoint names."""
    steps: tuple[PathStep, ...]
    seqno: SeqNo
    """The state is that after the changes below."""

    def made(self, rows: RowScan) -> PathResult:
        """The result with the rows of the state."""
        violations = tuple(rows.violations.values())
        return PathResult(self.partition, self.alternate, rows.groups, violations)

    def failed(self, error: TidelogError) -> PathResult:
        """The result when the path cannot be replayed."""
        return PathResult(self.partition, self.alternate, error=error)


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
    """The path from an older materialization: the older log, then the newer one."""
    older, newer = history.older, history.newer
    meeting = older.seqno
    common = set(newer.log)
    for number, part in enumerate(older.log):
        # The path may change early: what follows is then read once, for both paths.
        if part in common and part.first <= meeting:
            rest = _steps(newer)[newer.log.index(part) :]
            steps = (*map(PathStep, older.log[:number]), *rest)
            return RestorePath(partition, True, steps, newer.seqno)
    older_steps: list[PathStep] = []
    for part in older.log:
        if part.first < meeting:
            older_steps.append(PathStep(part, meeting if part.end > meeting else None))
    for block in older.inline:
        older_steps.append(PathStep(block, meeting))
    newer_log = [PathStep(part) for part in newer.log if part.end > meeting]
    steps = (*older_steps, *newer_log, *map(PathStep, newer.inline))
    return RestorePath(partition, True, steps, newer.seqno)


def _steps(state: SubtaskState) -> tuple[PathStep, ...]:
    return (*map(PathStep, state.log), *map(PathStep, state.inline))
