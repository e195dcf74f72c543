"""Tasks: the loop of one subtask, fed by channels.

Invariants: `finish` runs once in the life of a job, however often it restarts; a task
exits only after a completed checkpoint contains its end, and says so to the tasks behind it;
behind the barrier of a savepoint that the job stops with nothing is emitted, unless it is given
up.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable

from tidelog.ids import CheckpointId
from tidelog.runtime.channels.messages import Barrier, Batch, EndOfChannel, EndOfData, Watermark
from tidelog.runtime.in_flight.capture import InFlight
from tidelog.runtime.tasks.checkpoints import TaskCheckpoints, TaskProgress
from tidelog.runtime.tasks.parts import TaskParts
from tidelog.runtime.tasks.sink_output import SinkOutput
from tidelog.state.processor import MAX_WATERMARK


class Task(ABC):
    """What source tasks and stream tasks share: output, snapshots, the end of the data."""

    def __init__(self, parts: TaskParts) -> None:
        self.parts = parts
        self.id = parts.id
        self._checkpoints = TaskCheckpoints(parts, self._record_inputs)
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
        self._checkpoints.completed(checkpoint)
        if isinstance(self.parts.output, SinkOutput):
            await self.parts.output.commit(checkpoint)

    def abort(self, checkpoint: CheckpointId) -> None:
        """The checkpoint was given up."""
        self._given_up = max(self._given_up, checkpoint)
        if self._held == checkpoint:
            self._held = None
        self._checkpoints.abort(checkpoint)

    async def _resume(self) -> None:
        """Bring the restored watermark to operators and outputs: it only travels when it grows."""
        if self._watermark is not None:
            await self._fire_timers(self._watermark)
            await self.parts.output.announce(Watermark(self._watermark))
        if self._advancing is not None:
            await self._advance_watermark(self._advancing)

    def _stop(self) -> None:
        """Nothing of this task goes on behind its back."""
        self._checkpoints.stop()

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
        if barrier.stop and barrier.checkpoint > self._given_up:
            self._held = barrier.checkpoint
        progress = TaskProgress(self._watermark, self._finished, self._advancing)
        await self._checkpoints.take(barrier, seen_at, progress)

    def _record_inputs(self, in_flight: InFlight) -> None:
        """Collect what a barrier overtook in the inputs."""
