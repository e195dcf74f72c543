"""Tasks: the loop of one subtask, fed by channels.

Invariants: `finish` runs once in the life of a job, however often it restarts; a task exits only
after a completed checkpoint contains its end, and announces that downstream; after the barrier of a
savepoint that the job stops with nothing is emitted, unless the savepoint is given up.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from tidelog.checkpoint.config import Change
from tidelog.effects import wait_for
from tidelog.errors import OLDER_CHECKPOINT, InvariantError
from tidelog.ids import CheckpointId
from tidelog.options.units import plural
from tidelog.runtime.channels.gate import Gate
from tidelog.runtime.channels.messages import (
    Barrier,
    Batch,
    EndOfChannel,
    EndOfData,
    Idleness,
    Watermark,
)
from tidelog.runtime.in_flight.capture import InFlight
from tidelog.runtime.operators.turn import PAUSE, REST
from tidelog.runtime.snapshots.snapshotter import SubtaskPosition
from tidelog.runtime.tasks.task_checkpoints import TaskCheckpoints, TaskParts
from tidelog.state.event_time import MAX_WATERMARK

_BARRIERS_EVERY_S: Final = 0.05
"""So often a task that waits for its table takes a barrier."""


class Progress(NamedTuple):
    """What a task has done since its start, in figures that never return to what they were."""

    work: tuple[Any, ...]
    position: tuple[Any, ...]


class Task(ABC):
    """The part that source tasks and stream tasks share: output, snapshots, end of the data."""

    is_source = False
    """Whether its vertex reads splits, also when this subtask has none left."""
    ticks = True
    """Whether it has to learn that processing time passed."""

    def __init__(self, parts: TaskParts) -> None:
        self.parts = parts
        self.id = parts.id
        self._checkpoints = TaskCheckpoints(parts, self._record_inputs)
        self._stopping_with: CheckpointId | None = None
        """The checkpoint that the job is to stop with."""
        self._ending_with: CheckpointId | None = None
        """The capture of the state before the end that this task has taken part in."""
        self._data_ended = False
        self._finished = False
        self._leaving = False
        self.records_in = 0
        """Records since the start."""
        self.exited = False
        """The task's loop has ended: it takes part in no checkpoint any more."""
        restored = parts.restored
        self.watermark = restored.watermark if restored is not None else None
        """The watermark that the task has sent downstream; None: not known yet."""
        self._advancing = restored.advancing if restored is not None else None
        """The newest watermark that timers have not all fired for: what is late is decided by it.
        None: there is none beyond the one sent."""
        self.idle = False
        """Event time has no input of this task to wait for: all are idle or have ended."""
        self._captured_progress: dict[CheckpointId, Progress] = {}
        self._durable_progress: Progress | None = None
        """As the last durable checkpoint has it; None: the next one holds something new."""

    async def change(self) -> Change:
        """What a checkpoint taken now would hold beyond the last durable one."""
        if self.exited:
            return Change.NONE
        durable, progress = self._durable_progress, self._progress()
        if durable is None or self._data_ended or progress.work != durable.work:
            return Change.STATE
        if self.parts.output.due():
            return Change.STATE
        return Change.NONE if progress == durable else Change.POSITION

    def _progress(self) -> Progress:
        backend = self.parts.backend
        output, table = self.parts.output.records, self.parts.snapshotter.materialization
        rows = backend.seqno, backend.buffered, self.records_in, table
        event_time = self.watermark, self._advancing, backend.event_time.stored()
        # The rows of a source are its positions.
        if self.is_source:
            return Progress((output,), (*rows, *event_time))
        return Progress((output, *rows), event_time)

    @property
    def waiting(self) -> list[int]:
        """Bytes in memory of each buffer of records that waits in its channels."""
        return []

    @property
    def splits(self) -> int:
        """Splits of a source that are not read to their end."""
        return 0

    @property
    def event_time(self) -> int | None:
        """How far event time is for those that look at the task."""
        return self.watermark

    @property
    def unread(self) -> int | None:
        """What is known to wait in the splits of a source that are read; None: nothing is known."""
        return None

    @property
    def skipped(self) -> int:
        """Records that the source left out, in all subtasks of this process."""
        return 0

    @property
    def idle_splits(self) -> int:
        """Unfinished splits of a source that are idle: event time does not wait for them."""
        return 0

    @abstractmethod
    async def run(self) -> None:
        """Run until the end of the task or until cancelled; raises on failure."""

    @abstractmethod
    def _wake_up(self) -> None:
        """Wake the loop when it waits, so that it notices a change of state."""

    @abstractmethod
    def _start(self, barrier: Barrier) -> None:
        """Take a barrier from the driver, as no upstream task brings it."""

    def begin(self) -> None:
        """Read, where the task has waited for a table."""

    def drain(self) -> None:
        """Treat the data as ended: a source reads no more, and others follow it."""

    def end(self) -> None:
        """Emit what the end of the input leads to: a source that has read all of it ends."""

    def time_passed(self) -> None:
        """Processing time went on: timers may be due."""

    def trigger(self, barrier: Barrier) -> None:
        """Start a checkpoint here; one that comes too late is declined."""
        if self._leaving or self.exited:
            reason = f"{self.id} finished before the barrier reached it"
            self.parts.listener.declined(barrier.checkpoint, reason)
        else:
            self._start(barrier)

    def leave(self) -> None:
        """No later checkpoint needs this task: it exits."""
        self._leaving = True
        self._wake_up()

    async def complete(self, checkpoint: CheckpointId) -> None:
        self._checkpoints.completed(checkpoint)
        await self.parts.output.commit(checkpoint)
        for captured in [earlier for earlier in self._captured_progress if earlier <= checkpoint]:
            self._durable_progress = self._captured_progress.pop(captured)

    def abort(self, checkpoint: CheckpointId) -> None:
        if self._stopping_with == checkpoint:
            self._stopping_with = None
        if self._ending_with == checkpoint:
            self._ending_with = None
        self._checkpoints.abort(checkpoint)

    def _has_room(self) -> bool:
        """For what records lead to: in the outputs, and in the table."""
        return self.parts.output.available and not self._is_table_stalled()

    def _is_table_stalled(self) -> bool:
        """Whether nothing more may be written to the table until it is whole."""
        hydration = self.parts.backend.hydration
        return hydration is not None and hydration.check_stall()

    async def _resume(self) -> None:
        """Bring the restored watermark to operators and outputs: it only travels when it grows."""
        if self.watermark is not None:
            await self._emit_in_steps(self.parts.chain.watermark(self.watermark))
            await self.parts.output.announce(Watermark(self.watermark))
        if self._advancing is not None:
            await self._advance_watermark(self._advancing)

    async def _stop(self) -> None:
        """Cancel what the task has started in the background, and wait for its end."""
        await self._checkpoints.stop()

    async def _emit(self, batches: Iterable[Batch]) -> None:
        output = self.parts.output
        turn = self.parts.chain.turn
        for batch in output.joined(batches):
            if batch.records:
                await output.emit(batch)
            if batch.records or batch is REST:
                await self._flush_if_due()
            if batch is REST or turn.ended():
                await self._rest()

    async def _handle_input(self, batch: Batch) -> None:
        """Let the operators handle a buffer of the task's input."""
        work = self.parts.output.work
        work.handles_input = True
        await self._emit(self.parts.chain.process(batch))
        work.handles_input = False
        work.standstills.handled_buffer(more=self.is_source)

    async def _rest(self) -> None:
        await self.parts.output.work.rest()

    async def _emit_in_steps(self, batches: Iterable[Batch]) -> None:
        """Like `_emit` for what may take long: barriers may pass in between (FLIP-443)."""
        for batch in batches:
            await self._emit((batch,))
            if batch is PAUSE:
                await self._rest()
                await self._between_steps()

    async def _in_steps(self, steps: Iterator[None]) -> None:
        """Do what takes long, with the turns of others in between."""
        turn = self.parts.chain.turn
        for _ in steps:
            if turn.ended():
                await self._rest()

    async def _flush_if_due(self) -> None:
        backend = self.parts.backend
        await self._in_steps(backend.maintain(hurried=self.parts.chain.turn.short()))
        due = backend.flush_due()
        # Before the flush, which would keep its rows in memory as a cache.
        for _ in backend.memory.make_room():
            await self._rest()  # somebody else may be at it
        if due:
            await self._in_steps(backend.flush_in_steps())
            await self._memory_free()

    async def _memory_free(self) -> None:
        """Wait until what was written before has left memory: what comes next needs the room."""
        parts = self.parts
        uploader, table = parts.uploader, parts.backend.table
        if uploader is not None and uploader.full:
            with parts.output.work.waiting():
                await uploader.admit()
        if table.crowded():
            with parts.output.work.waiting():
                await parts.effects.offload.run(table.prepare_snapshot)

    async def _advance_watermark(self, time: int) -> None:
        """Fire event-time timers and forward the watermark."""
        await self._fire_all(time)

    async def _fire_all(self, time: int) -> None:
        """Like `_advance_watermark`, to its end."""
        if self.watermark is None or time > self.watermark:
            self._advancing = time
            await self._emit_in_steps(self.parts.chain.watermark(time))
            await self._fired(time)

    async def _fired(self, time: int) -> None:
        """All timers up to this watermark have fired: downstream tasks get it."""
        self.watermark = time
        if self._advancing is not None and self._advancing <= time:
            self._advancing = None
        await self.parts.output.announce(Watermark(time))

    async def _set_idle(self, idle: bool) -> None:
        """Announce whether downstream tasks are to wait for this one's watermark."""
        if idle != self.idle:
            self.idle = idle
            await self.parts.output.announce(Idleness(idle))

    async def _between_steps(self) -> None:
        """A hook where subclasses may take a checkpoint."""

    async def _end(self, *, drain: bool) -> None:
        """All input was handled; without `drain` another run reads on."""
        if drain:
            await self._wait_for_table()
            await self._fire_all(MAX_WATERMARK)
            await self._emit_in_steps(self.parts.chain.finish())
            self._finished = True
        self._data_ended = True
        await self.parts.output.announce(EndOfData(drain))
        self.parts.listener.ended(self.id)

    async def _wait_for_table(self) -> None:
        """Return when the table is whole: at the end of the data all of it may be read."""
        hydration, clock = self.parts.backend.hydration, self.parts.effects.clock
        while hydration is not None and not hydration.is_whole:
            await wait_for(hydration.arrived, clock, _BARRIERS_EVERY_S)
            await self._between_steps()

    async def _exit(self) -> None:
        await self.parts.output.announce(EndOfChannel())
        self.exited = True

    def _now(self) -> float:
        return self.parts.effects.clock.monotonic()

    async def _checkpoint(self, barrier: Barrier, seen_at: float) -> None:
        """Forward the barrier, capture the state, make it durable in the background."""
        if barrier.stop and barrier.checkpoint > self._checkpoints.given_up:
            self._stopping_with = barrier.checkpoint
        if barrier.before_end and barrier.checkpoint > self._checkpoints.given_up:
            self._ending_with = barrier.checkpoint
        position = SubtaskPosition(self.watermark, self._finished, self._advancing)
        captured = await self._checkpoints.take(barrier, seen_at, position)
        # A savepoint is the user's to delete, and a later checkpoint says that the sinks have
        # committed: a restart may be long after this, and what was committed then be elsewhere.
        if barrier.savepoint is not None or barrier.before_end:
            return
        if captured is not None and not captured.transactions:
            self._captured_progress[barrier.checkpoint] = self._progress()

    def _record_inputs(self, in_flight: InFlight) -> None:
        """Collect what a barrier overtook in the inputs."""


class FinishedTask(Task):
    """Stands in for a subtask whose finish is part of the restored checkpoint.

    It reads nothing, runs no operator and emits no record: it only sends the end of its data again.
    """

    def __init__(self, parts: TaskParts, gate: Gate | None) -> None:
        super().__init__(parts)
        self._gate = gate
        self.is_source = gate is None

    @property
    def event_time(self) -> int | None:
        """At its end: other subtasks say how far the operator is."""
        return MAX_WATERMARK

    async def run(self) -> None:
        await self.parts.output.announce(Watermark(MAX_WATERMARK))
        await self.parts.output.announce(EndOfData())
        # What upstream tasks still send is events, and never a record.
        open_channels = len(self._gate.channels) if self._gate is not None else 0
        while self._gate is not None and open_channels:
            received = await self._gate.get()
            message = received[1] if isinstance(received, tuple) else None
            if isinstance(message, Batch):
                raise InvariantError(
                    f"the input of {self.id}",
                    expected="no record, for the restored checkpoint says that it finished",
                    found=plural(len(message.records), "record"),
                    action=f"report this as a defect, and {OLDER_CHECKPOINT}",
                    retry_safe=False,
                )
            open_channels -= isinstance(message, EndOfChannel)
        await self._exit()

    def _start(self, barrier: Barrier) -> None:
        reason = f"{self.id} had finished before"
        self.parts.listener.declined(barrier.checkpoint, reason)

    def _wake_up(self) -> None:
        """Nothing: its loop never waits for a checkpoint."""
