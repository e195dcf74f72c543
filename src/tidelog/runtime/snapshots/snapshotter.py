"""A subtask's part of a checkpoint: captured at the barrier, made durable after it.

Invariants: `capture` copies references only and runs before the task handles another record, which
has flushed its backend and puts nothing into it meanwhile;
`settle` may take as long as it needs and never looks at the running task again. What was captured
stays in use until that checkpoint or a newer one completes: a materialization may have replaced
it, and a manifest given up because its answer was lost may be durable all the same.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import msgspec

from tidelog.changelog.chain import ChainCapture
from tidelog.checkpoint.manifest import (
    BarrierFacts,
    MaterializationRef,
    OperatorPiece,
    SubtaskState,
)
from tidelog.ids import CheckpointId, SeqNo
from tidelog.materialize.table_snapshot import Captured, TableSnapshots
from tidelog.state.backend import KeyedBackend
from tidelog.state.log import Base, SubtaskLog

_NO_CHANGE = SeqNo(0)


class SubtaskPosition(msgspec.Struct, frozen=True):
    """What a task stores besides its keyed state; the fields are those of `SubtaskState`."""

    watermark: int | None = None
    finished: bool = False
    advancing: int | None = None
    transactions: tuple[bytes, ...] = ()
    barrier: BarrierFacts | None = None
    operator_state: tuple[OperatorPiece, ...] = ()


class PendingSnapshot(Protocol):
    """A captured snapshot on its way to durability."""

    @property
    def state(self) -> SubtaskState:
        """The subtask's state without the references that `settle` adds."""

    async def settle(self) -> SubtaskState:
        """Make it durable; raises the store's errors."""

    async def discard(self) -> None:
        """In place of `settle`: remove what lies on local disk."""

    def objects(self) -> set[str]:
        """Stored objects it refers to, as far as they are known."""


@dataclass(slots=True, kw_only=True)
class Captures:
    """Snapshots that a checkpoint may yet refer to: what the snapshotters share."""

    pending: dict[CheckpointId, PendingSnapshot] = field(default_factory=dict)

    def completed(self, checkpoint: CheckpointId) -> None:
        """The checkpoint's manifest protects its objects from now on."""
        self.pending = {id: p for id, p in self.pending.items() if id > checkpoint}

    def objects(self) -> set[str]:
        """Stored objects the subtask still refers to."""
        return set().union(*(pending.objects() for pending in self.pending.values()))


def state_at(
    backend: KeyedBackend,
    snapshots: TableSnapshots,
    position: SubtaskPosition,
    start: SeqNo = _NO_CHANGE,
) -> SubtaskState:
    """A subtask's state in a snapshot taken now, without references to log and table."""
    return SubtaskState(
        index=snapshots.subtask,
        first_key_group=backend.owned.first,
        last_key_group=backend.owned.last,
        seqno=backend.seqno,
        table=snapshots.table_kind,
        ahead=backend.event_time.stored(),
        start=start,
        updates=backend.updates,
        **msgspec.structs.asdict(position),
    )


@dataclass(slots=True)
class LogSnapshotter(Captures):
    """Changelog on: a checkpoint refers to a materialization and to the log after it.

    Where these two do not hold everything, as after a restore that shares no files with what it
    restored, the checkpoint makes a materialization of its own.
    """

    backend: KeyedBackend
    log: SubtaskLog
    snapshots: TableSnapshots

    @property
    def materialization(self) -> MaterializationRef | None:
        return self.log.materialization

    async def capture(self, checkpoint: CheckpointId, position: SubtaskPosition) -> PendingSnapshot:
        """Take references to what the flushed backend holds; I/O only for an incomplete log."""
        if not self.log.complete:
            with self.snapshots.counting():
                await self.snapshots.prepare()
        if not self.log.complete:
            # The store may have lost the log after the task flushed: rows that it alone had then
            # wait for the table, which is to stand for all of them.
            self.backend.flush()
        state = state_at(self.backend, self.snapshots, position, self.log.base.start)
        pending: PendingSnapshot
        if self.log.complete:
            pending = _PendingLog(state, *self.log.capture(), self.log)
        else:
            with self.snapshots.counting():
                captured = self.snapshots.capture(self.backend.seqno)
            self.backend.begin_chain()
            pending = _PendingTable(self, state, captured)
        self.pending[checkpoint] = pending
        return pending

    def uploaded(self, ref: MaterializationRef) -> None:
        """A whole snapshot is durable: log and materialization are complete again."""
        self.log.materialized(ref)

    def start_over(self) -> None:
        """The store has lost something: the next checkpoint makes a materialization."""
        self.log.start_over()
        self.log.complete = False

    def completed(self, checkpoint: CheckpointId) -> None:
        captured = self.pending.get(checkpoint)
        if captured is not None:
            self.log.completed(captured.state.seqno)
        Captures.completed(self, checkpoint)

    def objects(self) -> set[str]:
        return self.log.objects() | self.snapshots.objects() | Captures.objects(self)


class _PendingLog(msgspec.Struct, frozen=True):
    state: SubtaskState
    base: Base
    chain: ChainCapture
    log: SubtaskLog

    async def settle(self) -> SubtaskState:
        self.log.uploader.cadence.captured()
        durable = await self.log.uploader.persist(self.chain)
        return msgspec.structs.replace(
            self.state,
            materialization=self.base.materialization,
            inherited=self.base.inherited,
            log=durable.ranges,
            inline=durable.inline,
        )

    async def discard(self) -> None:
        """Nothing is on disk."""

    def objects(self) -> set[str]:
        return self.chain.objects() | self.base.objects()


@dataclass(slots=True)
class TableSnapshotter(Captures):
    """Changelog off: a checkpoint uploads the table's new files, all subtasks at once."""

    backend: KeyedBackend
    snapshots: TableSnapshots
    start: SeqNo
    """Number of the subtask's first change."""
    materialization: MaterializationRef | None = None
    """The newest one that is durable."""
    log: ClassVar[None] = None

    async def capture(self, checkpoint: CheckpointId, position: SubtaskPosition) -> PendingSnapshot:
        """Freeze the table, unless nothing changed since the last materialization."""
        state = state_at(self.backend, self.snapshots, position, self.start)
        if self.materialization is not None and self.materialization.upto == self.backend.seqno:
            pending = _PendingTable(self, state, None, self.materialization)
        else:
            with self.snapshots.counting():
                await self.snapshots.prepare()
                captured = self.snapshots.capture(self.backend.seqno)
            pending = _PendingTable(self, state, captured)
        self.pending[checkpoint] = pending
        return pending

    def uploaded(self, ref: MaterializationRef) -> None:
        """A snapshot is durable; one of a checkpoint given up may come after a newer one."""
        if self.materialization is None or self.materialization.upto < ref.upto:
            self.materialization = ref

    def start_over(self) -> None:
        """The store has lost something: the next checkpoint makes a materialization."""
        self.materialization = None

    def objects(self) -> set[str]:
        last = {self.materialization.descriptor} if self.materialization is not None else set()
        return self.snapshots.objects() | last | Captures.objects(self)


Snapshotter = LogSnapshotter | TableSnapshotter


@dataclass(slots=True)
class _PendingTable:
    owner: Snapshotter
    state: SubtaskState
    captured: Captured | None
    ref: MaterializationRef | None = None

    async def settle(self) -> SubtaskState:
        snapshots = self.owner.snapshots
        if self.captured is not None:
            self.ref = await snapshots.upload(self.captured)
            self.owner.uploaded(self.ref)
            snapshots.ledger.done([self.ref.descriptor])
        return msgspec.structs.replace(self.state, materialization=self.ref)

    async def discard(self) -> None:
        if self.captured is not None:
            await self.owner.snapshots.discard(self.captured)

    def objects(self) -> set[str]:
        return {self.ref.descriptor} if self.ref is not None else set()
