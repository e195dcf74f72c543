"""The checkpoints of one task: from the barrier to a durable part of the manifest.

Invariants: the barrier goes on to the outputs before the snapshot is taken, and no record is
handled in between; what is in flight is collected while the state is made durable; a task answers
every barrier once, unless the checkpoint was given up.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from tidelog.checkpoint.manifest import BarrierFacts, InFlightRef, SubtaskState
from tidelog.errors import TidelogError, UnstorableError, UserFunctionError
from tidelog.ids import CheckpointId
from tidelog.runtime.channels.messages import Barrier
from tidelog.runtime.channels.output import Output
from tidelog.runtime.in_flight.capture import InFlight
from tidelog.runtime.snapshot import PendingSnapshot, SubtaskPosition
from tidelog.runtime.tasks.parts import TaskParts
from tidelog.runtime.tasks.sink_output import SinkOutput


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """How far event time is, and whether the data has ended."""

    watermark: int | None
    finished: bool
    advancing: int | None


class TaskCheckpoints:
    """Takes the checkpoints of a task; `record_inputs` collects what a barrier overtook there."""

    def __init__(self, parts: TaskParts, record_inputs: Callable[[InFlight], None]) -> None:
        self._parts = parts
        self._record_inputs = record_inputs
        self._settling: dict[CheckpointId, asyncio.Task[None]] = {}

    async def take(self, barrier: Barrier, seen_at: float, progress: TaskProgress) -> None:
        """Forward the barrier, capture the state, make it durable in the background.

        Raises UserFunctionError when a sink's pre-commit fails: what it holds then is unknown, and
        only a restart makes it right.
        """
        parts, checkpoint = self._parts, barrier.checkpoint
        in_flight = self._forward(barrier)
        # Outside of the decline: a task whose changes cannot be written has no state any more.
        parts.backend.flush()
        try:
            pending = await self._capture(barrier, seen_at, progress)
        except UserFunctionError:
            raise
        except TidelogError as error:
            parts.listener.declined(checkpoint, parts.id, f"{parts.id}: {error}")
            return
        settling = self._settle(checkpoint, pending, in_flight)
        self._settling[checkpoint] = asyncio.ensure_future(settling)

    def completed(self, checkpoint: CheckpointId) -> None:
        """The checkpoint is durable."""
        self._parts.snapshotter.completed(checkpoint)
        self._parts.canonical.completed(checkpoint)
        if self._parts.carrier is not None:
            self._parts.carrier.completed(checkpoint)

    def abort(self, checkpoint: CheckpointId) -> None:
        """The checkpoint was given up."""
        settling = self._settling.pop(checkpoint, None)
        if settling is not None:
            settling.cancel()
        if isinstance(self._parts.output, Output):
            self._parts.output.forget(checkpoint)

    def stop(self) -> None:
        """Nothing goes on behind the task's back."""
        for settling in self._settling.values():
            settling.cancel()

    async def _capture(
        self, barrier: Barrier, seen_at: float, progress: TaskProgress
    ) -> PendingSnapshot:
        parts = self._parts
        transactions: tuple[bytes, ...] = ()
        if isinstance(parts.output, SinkOutput):
            transactions = await parts.output.pre_commit(barrier.checkpoint)
        position = SubtaskPosition(
            progress.watermark,
            transactions,
            progress.finished,
            progress.advancing,
            _facts(barrier, seen_at, self._now()),
            parts.operator_states.capture(),
        )
        snapshotter = parts.canonical if barrier.canonical else parts.snapshotter
        return await snapshotter.capture(barrier.checkpoint, position)

    def _now(self) -> float:
        return self._parts.effects.clock.monotonic()

    def _forward(self, barrier: Barrier) -> InFlight | None:
        """Send the barrier on; what it overtakes, in outputs and inputs, is in-flight data."""
        output, switching = self._parts.output, self._parts.switching
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

    async def _switch_at(self, deadline: float, barrier: Barrier, in_flight: InFlight) -> None:
        await self._parts.effects.clock.sleep(deadline - self._now())
        assert isinstance(self._parts.output, Output), "a sink keeps no barrier waiting"
        self._parts.output.switch(barrier, in_flight)

    async def _settle(
        self, checkpoint: CheckpointId, pending: PendingSnapshot, in_flight: InFlight | None
    ) -> None:
        try:
            state = await self._stored(pending, in_flight)
        except UnstorableError as error:
            self._parts.listener.keep_aligned(self._parts.id, f"{self._parts.id}: {error}")
            self._parts.listener.declined(checkpoint, self._parts.id, f"{self._parts.id}: {error}")
        except Exception as error:  # also a defect of ours must not leave the others waiting
            self._parts.listener.declined(checkpoint, self._parts.id, f"{self._parts.id}: {error}")
        else:
            self._parts.listener.acknowledged(checkpoint, self._parts.id, state)
        finally:
            self._settling.pop(checkpoint, None)

    async def _stored(self, pending: PendingSnapshot, in_flight: InFlight | None) -> SubtaskState:
        """The state and the in-flight data, both durable."""
        if in_flight is None:
            return await pending.settle()
        carrier = self._parts.carrier
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
