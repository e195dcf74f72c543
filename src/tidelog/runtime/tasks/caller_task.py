"""Caller tasks: the state of an operator that the program itself works on, in threads of its own.

Invariants: nobody but this task and the caller touches the backend, and never at the same time; the
caller waits while a checkpoint captures what it wrote, so that a checkpoint holds whole steps of
it, and sinks get what was emitted in these before the barrier and nothing else; it waits as well
while memory is full or a sink has no room. A caller that changes nothing costs nothing.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import Final, Protocol

from tidelog.checkpoint.config import Change
from tidelog.effects import wait_for
from tidelog.events import Event
from tidelog.ids import CheckpointId
from tidelog.runtime.channels.messages import Barrier, SideBatch
from tidelog.runtime.operators.operator import Operator
from tidelog.runtime.tasks.task import Task
from tidelog.runtime.tasks.task_checkpoints import TaskParts

logger = logging.getLogger(__name__)

_LOOKS_EVERY_S: Final = 0.05
"""So often it is seen to that buffered rows are flushed in time, while there are any."""


class Caller(Protocol):
    """A program outside of the event loop that works on the state of one operator."""

    def operator(self) -> Operator:
        """A new operator, which declares the states when it opens."""

    def begin(self, wake: asyncio.Event) -> None:
        """The states of the newest operator are restored: the caller may work on them.

        It sets `wake`, in the event loop, when it has written or read much.
        """

    def exclusive(
        self, aborted: asyncio.Event, meanwhile: Callable[[], Awaitable[None]]
    ) -> AbstractAsyncContextManager[bool]:
        """Nobody works on the states in the block, which begins between two steps of the caller.
        While it waits for the end of one it calls `meanwhile` now and then.

        False, and everybody may: the wait was given up before the caller's step had ended.
        """

    def take_sink_batches(self) -> list[SideBatch]:
        """What the caller has emitted since the last call, in portions, by the names of sinks."""

    def capture(self, checkpoint: CheckpointId) -> None:
        """A checkpoint is about to capture what the caller wrote so far: the last chance to write.

        Called while its states are held.
        """

    def completed(self, checkpoint: CheckpointId) -> None:
        """The checkpoint is durable."""

    def end(self) -> None:
        """The states are about to be closed: nobody may touch them any more."""

    def block_steps(self, blocked: bool) -> None:
        """Let no step begin, or let steps begin again."""

    def wake_at_next_change(self) -> None:
        """Nothing is left to flush: the caller is to set `wake` with its next change."""

    @property
    def change(self) -> Change:
        """What the caller has yet to write in `capture`, or to hand over in `emitted`."""

    @property
    def open_steps(self) -> str:
        """Who has not ended a step, for messages."""

    def paused(self) -> AbstractContextManager[None]:
        """The caller waits in the block, in the middle of a step if need be."""


class CallerTask(Task):
    ticks = False

    def __init__(self, parts: TaskParts, caller: Caller) -> None:
        super().__init__(parts)
        self._caller = caller
        self._barriers: deque[Barrier] = deque()
        self._wake = asyncio.Event()
        self._aborted = asyncio.Event()
        """The checkpoint is given up whose barrier waits for the caller."""
        self._pending_checkpoint: CheckpointId | None = None
        self._is_stalled = False
        """No step may begin before the table is whole."""
        log = parts.snapshotter.log
        if log is None or log.complete:  # a program that only looks costs nothing
            self._durable_progress = self._progress()

    def _start(self, barrier: Barrier) -> None:
        self._barriers.append(barrier)
        self._wake.set()

    def _wake_up(self) -> None:
        self._wake.set()

    async def complete(self, checkpoint: CheckpointId) -> None:
        await super().complete(checkpoint)
        self._caller.completed(checkpoint)

    async def change(self) -> Change:
        return max(await super().change(), self._caller.change)

    @property
    def _has_no_work(self) -> bool:
        """Nothing is to be done before the caller or a checkpoint wakes the task."""
        backend = self.parts.backend
        return not (self._is_stalled or backend.buffered or backend.sweeps or self._caller.change)

    def abort(self, checkpoint: CheckpointId) -> None:
        super().abort(checkpoint)
        if self._pending_checkpoint is not None and self._pending_checkpoint <= checkpoint:
            self._aborted.set()

    async def run(self) -> None:
        clock = self.parts.effects.clock
        self._is_stalled = self._is_table_stalled()  # nothing was written yet
        self._caller.begin(self._wake)
        try:
            while not self._leaving:
                if has_no_work := self._has_no_work:
                    self._caller.wake_at_next_change()
                await wait_for(self._wake, clock, None if has_no_work else _LOOKS_EVERY_S)
                self._wake.clear()
                while self._barriers:
                    await self._capture(self._barriers.popleft())
                await self._flush()
                await self._rest()  # others may have as much to flush
        finally:
            self._caller.end()
            await self._stop()
        await self._exit()

    async def _capture(self, barrier: Barrier) -> None:
        if barrier.checkpoint <= self._checkpoints.given_up:
            return
        seen_at = self._now()
        self._pending_checkpoint = barrier.checkpoint
        self._aborted.clear()
        # Most of it goes while the caller works on; what it writes meanwhile is the rest.
        with self._until_room():
            await self._in_steps(self.parts.backend.flush_in_steps())
        async with self._caller.exclusive(self._aborted, self._flush) as is_exclusive:
            if is_exclusive:
                for batch in self._caller.take_sink_batches():
                    await self.parts.output.emit(batch)
                self._caller.capture(barrier.checkpoint)
                await self._checkpoint(barrier, seen_at)
            else:
                Event.STEP_OPEN.log(
                    logger, attempt=barrier.checkpoint, callers=self._caller.open_steps
                )
        self._pending_checkpoint = None

    async def _flush(self) -> None:
        output = self.parts.output
        for batch in self._caller.take_sink_batches():
            with nullcontext() if output.available else self._caller.paused():
                await output.emit(batch)
        with self._until_room():
            await self._memory_free()
            await self._flush_if_due()
        is_stalled = self._is_table_stalled()
        # A checkpoint lets steps begin again at its end.
        if self._pending_checkpoint is None and (is_stalled or self._is_stalled):
            self._is_stalled = is_stalled
            self._caller.block_steps(is_stalled)

    def _until_room(self) -> AbstractContextManager[None]:
        """The caller waits in the block if memory has no room for more of what it writes.

        Tasks of streams read nothing while they flush; a caller would write on, and faster.
        """
        uploader, backend = self.parts.uploader, self.parts.backend
        uploads_wait = uploader is not None and uploader.full
        full = backend.crowded or backend.table.crowded() or uploads_wait
        return self._caller.paused() if full else nullcontext()
