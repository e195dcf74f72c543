"""The checkpoints of one task: from the barrier to a durable part of the manifest.

Invariants: the barrier goes on to the outputs before the snapshot is taken, and no record is
handled in between; what is in flight is collected while the state is made durable; a task answers
every barrier once, unless the checkpoint was given up.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import msgspec

from tidelog.changelog.uploader import Uploader
from tidelog.checkpoint.manifest import BarrierFacts, SubtaskState
from tidelog.concurrency import discard
from tidelog.effects import Effects
from tidelog.errors import FencedError, SerializationError, TidelogError, UserFunctionError
from tidelog.events import Event
from tidelog.ids import CheckpointId, SubtaskId
from tidelog.runtime.channels.messages import Barrier
from tidelog.runtime.channels.output import ChannelOutput
from tidelog.runtime.in_flight.capture import InFlight
from tidelog.runtime.in_flight.carrier import InFlightCarrier
from tidelog.runtime.operators.chain import OperatorChain
from tidelog.runtime.operators.turn import Turn
from tidelog.runtime.snapshots.canonical import CanonicalSnapshotter
from tidelog.runtime.snapshots.snapshotter import PendingSnapshot, Snapshotter, SubtaskPosition
from tidelog.runtime.tasks.alignment import Switching
from tidelog.state.backend import KeyedBackend
from tidelog.state.operator_state import OperatorStates


class CheckpointListener(Protocol):
    """What tasks report to: the checkpoint driver."""

    def acknowledged(
        self, checkpoint: CheckpointId, task: SubtaskId, state: SubtaskState
    ) -> None: ...

    def declined(self, checkpoint: CheckpointId, reason: str) -> None:
        """A task cannot take part; `reason` names the task."""

    def found_input(self) -> None:
        """A source has read something for the first time in this run."""

    def at_end(self, task: SubtaskId, splits: int | None = None) -> None:
        """A task has handled all of its input; a source, in so many splits, waits for `end`."""

    def ended(self, task: SubtaskId) -> None: ...

    def keep_aligned(self, reason: str) -> None:
        """In-flight data of this job cannot be stored."""


@dataclass(slots=True, eq=False)
class TaskParts:
    id: SubtaskId
    chain: OperatorChain
    backend: KeyedBackend
    snapshotter: Snapshotter
    canonical: CanonicalSnapshotter
    output: ChannelOutput
    uploader: Uploader | None
    effects: Effects
    listener: CheckpointListener
    restored: SubtaskState | None = None
    keyed: bool = False
    """The task has keyed state, so it may emit records later than it gets them."""
    operator_states: OperatorStates = field(default_factory=OperatorStates)
    switching: Switching | None = None
    """When barriers overtake; None when checkpoints stay aligned."""
    carrier: InFlightCarrier | None = None
    """Stores in-flight data; None exactly when checkpoints stay aligned."""


logger = logging.getLogger(__name__)


class TaskCheckpoints:
    """Takes the checkpoints of a task; `record_inputs` collects what a barrier overtook there."""

    def __init__(self, parts: TaskParts, record_inputs: Callable[[InFlight], None]) -> None:
        self._parts = parts
        self._record_inputs = record_inputs
        self._settling: dict[CheckpointId, asyncio.Task[None]] = {}
        self.given_up = CheckpointId(-1)
        """The newest checkpoint that was given up."""

    async def take(
        self, barrier: Barrier, seen_at: float, position: SubtaskPosition
    ) -> SubtaskState | None:
        """Forward the barrier, capture the state, make it durable in the background.

        `position` is what the task's own loop knows: event time and whether the data has ended.
        Returns what was captured, without references; None: the checkpoint is declined or was given
        up.

        Raises UserFunctionError when a sink's pre-commit fails: what it holds then is unknown, and
        only a restart makes it right. Raises FencedError: there is nothing left to do for this job.
        """
        checkpoint, in_flight, pending = barrier.checkpoint, self._forward(barrier), None
        try:
            pending = await self._captured(barrier, seen_at, position)
        finally:
            if pending is None and in_flight is not None:
                in_flight.stop()
        if pending is None:
            return None

        def settled(_: asyncio.Task[None]) -> None:
            self._settling.pop(checkpoint, None)
            if in_flight is not None:
                in_flight.stop()

        settling = asyncio.ensure_future(self._settle(checkpoint, pending, in_flight))
        self._settling[checkpoint] = settling
        # Not in the coroutine itself: one that is cancelled before its first step does nothing.
        settling.add_done_callback(settled)
        return pending.state

    async def _captured(
        self, barrier: Barrier, seen_at: float, position: SubtaskPosition
    ) -> PendingSnapshot | None:
        """The state at the barrier; None: it is declined, or the checkpoint was given up."""
        parts, checkpoint = self._parts, barrier.checkpoint
        log = parts.snapshotter.log
        of_table = barrier.canonical or log is None or not log.complete
        # A whole turn at a time: the checkpoint waits for this, and turns of others are short.
        turn = Turn(parts.effects.clock.monotonic)
        for _ in parts.backend.flush_in_steps(settle=of_table):
            if turn.ended():
                await parts.effects.clock.sleep(0)
                turn.begin()
        # Outside of the decline: a task whose changes cannot be written has no state any more.
        parts.backend.flush(settle=of_table)
        try:
            pending = await self._capture(barrier, seen_at, position)
        except (UserFunctionError, FencedError):
            raise
        except TidelogError as error:
            parts.listener.declined(checkpoint, f"{parts.id}: {error}")
            return None
        if checkpoint > self.given_up:
            return pending
        await pending.discard()
        return None

    def completed(self, checkpoint: CheckpointId) -> None:
        self._parts.snapshotter.completed(checkpoint)
        self._parts.canonical.completed(checkpoint)
        if self._parts.carrier is not None:
            self._parts.carrier.completed(checkpoint)

    def abort(self, checkpoint: CheckpointId) -> None:
        self.given_up = max(self.given_up, checkpoint)
        settling = self._settling.get(checkpoint)
        if settling is not None:
            settling.cancel()
        self._parts.output.forget(checkpoint)

    async def stop(self) -> None:
        """Cancel what is being made durable, and wait until nothing works on the table any more."""
        await discard(self._settling.values())

    async def _capture(
        self, barrier: Barrier, seen_at: float, position: SubtaskPosition
    ) -> PendingSnapshot:
        parts = self._parts
        position = msgspec.structs.replace(
            position,
            transactions=()
            if barrier.before_end
            else await parts.output.pre_commit(barrier.checkpoint),
            barrier=BarrierFacts(
                unaligned=barrier.order == "unaligned",
                start_delay_ms=round((seen_at - barrier.started) * 1000),
                alignment_ms=round((self._now() - seen_at) * 1000),
            ),
            operator_state=parts.operator_states.capture(),
        )
        if barrier.canonical:
            return await parts.canonical.capture(barrier.checkpoint, position)
        return await parts.snapshotter.capture(barrier.checkpoint, position)

    def _now(self) -> float:
        return self._parts.effects.clock.monotonic()

    def _forward(self, barrier: Barrier) -> InFlight | None:
        """Send the barrier on; what it overtakes, in outputs and inputs, is in-flight data."""
        output, switching = self._parts.output, self._parts.switching
        if switching is None or barrier.order == "aligned":
            output.forward(barrier, None)
            return None
        in_flight = InFlight(barrier.checkpoint)
        deadline = switching.deadline(barrier, self._now())
        if deadline is not None and deadline <= self._now():
            barrier = replace(barrier, order="unaligned")
        output.forward(barrier, in_flight)
        self._record_inputs(in_flight)
        in_flight.seal()
        if barrier.order == "may-switch" and deadline is not None and not in_flight.is_complete:
            overtaking = replace(barrier, order="unaligned")
            in_flight.switch_by(self._switch_at(deadline, overtaking, in_flight))
        return in_flight

    async def _switch_at(self, deadline: float, barrier: Barrier, in_flight: InFlight) -> None:
        await self._parts.effects.clock.sleep(deadline - self._now())
        self._parts.output.switch(barrier, in_flight)

    async def _settle(
        self, checkpoint: CheckpointId, pending: PendingSnapshot, in_flight: InFlight | None
    ) -> None:
        task, listener = self._parts.id, self._parts.listener
        try:
            state = await self._stored(pending, in_flight)
        except Exception as error:  # also a defect of ours must not leave the others waiting
            if isinstance(error, SerializationError):
                listener.keep_aligned(f"{task}: {error}")
            elif not isinstance(error, TidelogError):
                Event.SNAPSHOT_DEFECT.log(
                    logger, exc_info=True, attempt=checkpoint, task=task, error=error
                )
            listener.declined(checkpoint, f"{task}: {error}")
        else:
            listener.acknowledged(checkpoint, task, state)

    async def _stored(self, pending: PendingSnapshot, in_flight: InFlight | None) -> SubtaskState:
        """The state and the in-flight data, both durable."""
        if in_flight is None:
            return await pending.settle()
        carrier = self._parts.carrier
        assert carrier is not None
        settling = asyncio.ensure_future(pending.settle())
        try:
            ref = await carrier.store(in_flight.checkpoint, await in_flight.complete())
            state = await settling
        finally:
            await discard([settling])
        if ref is None:
            return state
        assert state.barrier is not None
        facts = msgspec.structs.replace(state.barrier, unaligned=True)
        return msgspec.structs.replace(state, in_flight=ref, barrier=facts)
