"""Tasks: the loop of one subtask, fed by channels.

Invariants: the barrier goes on to the outputs before the snapshot is taken, and no record is
handled in between; `finish` runs once in the life of a job, however often it restarts; a task
exits only after a completed checkpoint contains its end, and says so to the tasks behind it;
behind the barrier of a savepoint that the job stops with nothing is emitted, unless it is given
up.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

import msgspec

from tidelog.checkpoint.manifest import BarrierFacts, InFlightRef, SubtaskState
from tidelog.dstl.uploader import Uploader
from tidelog.effects import Effects
from tidelog.errors import TidelogError, UnstorableError, UserFunctionError
from tidelog.ids import CheckpointId
from tidelog.runtime.alignment import Switching
from tidelog.runtime.canonical import CanonicalSnapshotter
from tidelog.runtime.chain import OperatorChain
from tidelog.runtime.in_flight.capture import InFlight
from tidelog.runtime.in_flight.carrier import InFlightCarrier
from tidelog.runtime.messages import Barrier, Batch, EndOfChannel, EndOfData, Watermark
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

    def keep_aligned(self, task: TaskId, reason: str) -> None:
        """In-flight data of this job cannot be stored."""
        ...


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
    canonical: CanonicalSnapshotter
    output: Output | SinkOutput
    uploader: Uploader | None
    effects: Effects
    listener: CheckpointListener
    restored: SubtaskState | None = None
    switching: Switching | None = None
    """None: checkpoints stay aligned."""
    carrier: InFlightCarrier | None = None
    """Stores in-flight data; None exactly when checkpoints stay aligned."""
    metrics: TaskMetrics = field(default_factory=TaskMetrics)


class Task(ABC):
    """What source tasks and stream tasks share: output, snapshots, the end of the data."""

    def __init__(self, parts: TaskParts) -> None:
        self.parts = parts
        self.id = parts.id
        self._settling: dict[CheckpointId, asyncio.Task[None]] = {}
        self._held: CheckpointId | None = None
        """The checkpoint that the job is to stop with."""
        self._given_up = CheckpointId(-1)
        self._ended = False
        self._finished = False
        self._leaving = False
        self.exited = False
        """Its loop is over: it takes part in nothing any more."""
        restored = parts.restored
        self._watermark = restored.watermark if restored is not None else None
        self._advancing = restored.advancing if restored is not None else None
        """A watermark on its way through the timers."""

    @abstractmethod
    async def run(self) -> None:
        """Run until the end of the task or until cancelled; raises on failure."""

    @abstractmethod
    def _wake_up(self) -> None:
        """Make the loop look around, also when it waits."""

    @abstractmethod
    def _start(self, barrier: Barrier) -> None:
        """Take a barrier that no task in front brings."""

    def trigger(self, barrier: Barrier) -> None:
        """Start a checkpoint here; one that comes too late is declined."""
        if self._leaving or self.exited:
            reason = f"{self.id} finished before the barrier reached it"
            self.parts.listener.declined(barrier.checkpoint, self.id, reason)
        else:
            self._start(barrier)

    def leave(self) -> None:
        """No later checkpoint needs this task: it exits."""
        self._leaving = True
        self._wake_up()

    async def complete(self, checkpoint: CheckpointId) -> None:
        """The checkpoint is durable."""
        self.parts.snapshotter.completed(checkpoint)
        self.parts.canonical.completed(checkpoint)
        if self.parts.carrier is not None:
            self.parts.carrier.completed(checkpoint)
        if isinstance(self.parts.output, SinkOutput):
            await self.parts.output.commit(checkpoint)

    def abort(self, checkpoint: CheckpointId) -> None:
        """The checkpoint was given up."""
        self._given_up = max(self._given_up, checkpoint)
        if self._held == checkpoint:
            self._held = None
        settling = self._settling.pop(checkpoint, None)
        if settling is not None:
            settling.cancel()
        if isinstance(self.parts.output, Output):
            self.parts.output.forget(checkpoint)

    async def _resume(self) -> None:
        """Bring the restored watermark to operators and outputs: it only travels when it grows."""
        if self._watermark is not None:
            await self._fire_timers(self._watermark)
            await self.parts.output.announce(Watermark(self._watermark))
        if self._advancing is not None:
            await self._advance_watermark(self._advancing)

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
            self._advancing = time
            await self._fire_timers(time)
            self._watermark, self._advancing = time, None
            await self.parts.output.announce(Watermark(time))

    async def _fire_timers(self, time: int) -> None:
        """A few at a time: a barrier may pass between them (FLIP-443)."""
        for outputs in self.parts.chain.watermark(time):
            await self._emit(outputs)
            await self.parts.effects.clock.sleep(0)
            await self._between_timers()

    async def _between_timers(self) -> None:
        """A checkpoint may be taken here."""

    async def _end(self, *, drain: bool) -> None:
        """All input was handled; without drain there is more, for another run to read."""
        if drain:
            await self._advance_watermark(MAX_WATERMARK)
            await self._emit(self.parts.chain.finish())
            self._finished = True
        self._ended = True
        await self.parts.output.announce(EndOfData(drain))
        self.parts.listener.ended(self.id)

    async def _exit(self) -> None:
        """The last thing a task does."""
        await self.parts.output.announce(EndOfChannel())
        self.exited = True

    def _now(self) -> float:
        return self.parts.effects.clock.monotonic()

    async def _checkpoint(self, barrier: Barrier, seen_at: float) -> None:
        """Forward the barrier, capture the state, make it durable in the background."""
        parts = self.parts
        in_flight = self._forward(barrier)
        if barrier.stop and barrier.checkpoint > self._given_up:
            self._held = barrier.checkpoint
        # Outside of the decline: a task whose changes cannot be written has no state any more.
        parts.backend.flush()
        try:
            transactions: tuple[bytes, ...] = ()
            if isinstance(parts.output, SinkOutput):
                transactions = await parts.output.pre_commit(barrier.checkpoint)
            facts = _facts(barrier, seen_at, self._now())
            position = SubtaskPosition(
                self._watermark, transactions, self._finished, self._advancing, facts
            )
            snapshotter = parts.canonical if barrier.canonical else parts.snapshotter
            pending = await snapshotter.capture(barrier.checkpoint, position)
        except UserFunctionError:
            raise  # what a user's sink holds after it is unknown: only a restart makes it right
        except TidelogError as error:
            parts.listener.declined(barrier.checkpoint, self.id, f"{self.id}: {error}")
            return
        settling = asyncio.ensure_future(self._settle(barrier.checkpoint, pending, in_flight))
        self._settling[barrier.checkpoint] = settling

    def _forward(self, barrier: Barrier) -> InFlight | None:
        """Send the barrier on; what it overtakes, in outputs and inputs, is in-flight data."""
        output, switching = self.parts.output, self.parts.switching
        if switching is None or barrier.order == "aligned":
            output.forward(barrier, None)
            return None
        in_flight = InFlight(barrier.checkpoint)
        deadline = switching.output_deadline(barrier, self._now())
        if deadline is not None and deadline <= self._now():
            barrier = replace(barrier, order="unaligned")
        output.forward(barrier, in_flight)
        self._record_inputs(in_flight)
        in_flight.seal()
        if barrier.order == "may-switch" and deadline is not None and not in_flight.is_complete:
            switch = self._switch_at(deadline, replace(barrier, order="unaligned"), in_flight)
            in_flight.switching = asyncio.ensure_future(switch)
        return in_flight

    def _record_inputs(self, in_flight: InFlight) -> None:
        """Collect what the barrier overtook in the inputs."""

    async def _switch_at(self, deadline: float, barrier: Barrier, in_flight: InFlight) -> None:
        await self.parts.effects.clock.sleep(deadline - self._now())
        assert isinstance(self.parts.output, Output), "a sink keeps no barrier waiting"
        self.parts.output.switch(barrier, in_flight)

    async def _settle(
        self, checkpoint: CheckpointId, pending: PendingSnapshot, in_flight: InFlight | None
    ) -> None:
        try:
            state = await self._stored(pending, in_flight)
        except UnstorableError as error:
            self.parts.listener.keep_aligned(self.id, f"{self.id}: {error}")
            self.parts.listener.declined(checkpoint, self.id, f"{self.id}: {error}")
        except Exception as error:  # also a defect of ours must not leave the others waiting
            self.parts.listener.declined(checkpoint, self.id, f"{self.id}: {error}")
        else:
            self.parts.listener.acknowledged(checkpoint, self.id, state)
        finally:
            self._settling.pop(checkpoint, None)

    async def _stored(self, pending: PendingSnapshot, in_flight: InFlight | None) -> SubtaskState:
        """The state and the in-flight data, both durable."""
        if in_flight is None:
            return await pending.settle()
        carrier = self.parts.carrier
        assert carrier is not None
        settling = asyncio.ensure_future(pending.settle())
        try:
            ref = await carrier.store(in_flight.checkpoint, await in_flight.complete())
            return _with_in_flight(await settling, ref)
        finally:
            settling.cancel()
            in_flight.stop()


def _facts(barrier: Barrier, seen_at: float, now: float) -> BarrierFacts:
    return BarrierFacts(
        unaligned=barrier.order == "unaligned",
        start_delay_ms=round((seen_at - barrier.started) * 1000),
        alignment_ms=round((now - seen_at) * 1000),
    )


def _with_in_flight(state: SubtaskState, ref: InFlightRef | None) -> SubtaskState:
    if ref is None:
        return state
    assert state.barrier is not None
    facts = msgspec.structs.replace(state.barrier, unaligned=True)
    return msgspec.structs.replace(state, in_flight=ref, barrier=facts)
