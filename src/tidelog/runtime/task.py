"""Tasks: the loop of one subtask, fed by channels.

Invariants: the barrier goes on to the outputs before the snapshot is taken, and no record is
handled in between; `finish` runs once in the life of a job, however often it restarts.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from tidelog.checkpoint.manifest import SubtaskState
from tidelog.dstl.uploader import Uploader
from tidelog.effects import Effects
from tidelog.errors import TidelogError, UserFunctionError
from tidelog.ids import CheckpointId
from tidelog.runtime.chain import OperatorChain
from tidelog.runtime.messages import Barrier, Batch, EndOfData, Watermark
from tidelog.runtime.output import Output
from tidelog.runtime.sink_output import SinkOutput
from tidelog.runtime.snapshot import PendingSnapshot, Snapshotter, SubtaskPosition
from tidelog.state.backend import KeyedBackend
from tidelog.state.processor import MAX_WATERMARK


@dataclass(frozen=True, slots=True, order=True)
class TaskId:
    """A subtask of a vertex."""

    vertex: str
    subtask: int

    def __str__(self) -> str:
        return f"{self.vertex}-{self.subtask}"


class CheckpointListener(Protocol):
    """Where tasks report to."""

    def acknowledged(self, checkpoint: CheckpointId, task: TaskId, state: SubtaskState) -> None: ...

    def declined(self, checkpoint: CheckpointId, task: TaskId, reason: str) -> None: ...

    def ended(self, task: TaskId) -> None: ...


@dataclass(slots=True)
class TaskMetrics:
    """Counters since the start."""

    records_in: int = 0


@dataclass(slots=True, eq=False)
class TaskParts:
    """What a task is made of."""

    id: TaskId
    chain: OperatorChain
    backend: KeyedBackend
    snapshotter: Snapshotter
    output: Output | SinkOutput
    uploader: Uploader | None
    effects: Effects
    listener: CheckpointListener
    restored: SubtaskState | None = None
    metrics: TaskMetrics = field(default_factory=TaskMetrics)


class Task(ABC):
    """What source tasks and stream tasks share: output, snapshots, the end of the data."""

    def __init__(self, parts: TaskParts) -> None:
        self.parts = parts
        self.id = parts.id
        self._settling: dict[CheckpointId, asyncio.Task[None]] = {}
        restored = parts.restored
        self._finished = restored.finished if restored is not None else False
        self._watermark = restored.watermark if restored is not None else None

    @abstractmethod
    async def run(self) -> None:
        """Run until cancelled; raises on failure."""

    async def complete(self, checkpoint: CheckpointId) -> None:
        """The checkpoint is durable."""
        self.parts.snapshotter.completed(checkpoint)
        if isinstance(self.parts.output, SinkOutput):
            await self.parts.output.commit(checkpoint)

    def abort(self, checkpoint: CheckpointId) -> None:
        """The checkpoint was given up."""
        settling = self._settling.pop(checkpoint, None)
        if settling is not None:
            settling.cancel()

    async def _resume(self) -> None:
        """Bring the restored watermark to operators and outputs: it only travels when it grows."""
        if self._watermark is not None:
            if not self._finished:
                await self._emit(self.parts.chain.watermark(self._watermark))
            await self.parts.output.announce(Watermark(self._watermark))

    def _stop(self) -> None:
        """Nothing of this task goes on behind its back."""
        for settling in self._settling.values():
            settling.cancel()

    async def _emit(self, batches: Iterable[Batch]) -> None:
        output = self.parts.output
        for batch in batches:
            await output.emit(batch)
            await self._flush_if_due()

    async def _flush_if_due(self) -> None:
        backend = self.parts.backend
        if backend.flush_due():
            backend.flush()
            uploader = self.parts.uploader
            if uploader is not None and uploader.full:
                with self.parts.output.work.waiting():
                    await uploader.admit()

    async def _advance_watermark(self, time: int) -> None:
        """Fire event-time timers and forward the watermark."""
        if self._watermark is None or time > self._watermark:
            self._watermark = time
            await self._emit(self.parts.chain.watermark(time))
            await self.parts.output.announce(Watermark(time))

    async def _end(self) -> None:
        """All input was handled."""
        if not self._finished:
            await self._advance_watermark(MAX_WATERMARK)
            await self._emit(self.parts.chain.finish())
            self._finished = True
        await self.parts.output.announce(EndOfData())
        self.parts.listener.ended(self.id)

    async def _checkpoint(self, barrier: Barrier) -> None:
        """Forward the barrier, capture the state, make it durable in the background."""
        parts = self.parts
        await parts.output.announce(barrier)
        # Outside of the decline: a task whose changes cannot be written has no state any more.
        parts.backend.flush()
        try:
            transactions: tuple[bytes, ...] = ()
            if isinstance(parts.output, SinkOutput):
                transactions = await parts.output.pre_commit(barrier.checkpoint)
            position = SubtaskPosition(self._watermark, transactions, self._finished)
            pending = await parts.snapshotter.capture(barrier.checkpoint, position)
        except UserFunctionError:
            raise  # what a user's sink holds after it is unknown: only a restart makes it right
        except TidelogError as error:
            parts.listener.declined(barrier.checkpoint, self.id, f"{self.id}: {error}")
            return
        settling = asyncio.ensure_future(self._settle(barrier.checkpoint, pending))
        self._settling[barrier.checkpoint] = settling

    async def _settle(self, checkpoint: CheckpointId, pending: PendingSnapshot) -> None:
        try:
            state = await pending.settle()
        except Exception as error:  # also a defect of ours must not leave the others waiting
            self.parts.listener.declined(checkpoint, self.id, f"{self.id}: {error}")
        else:
            self.parts.listener.acknowledged(checkpoint, self.id, state)
        finally:
            self._settling.pop(checkpoint, None)
