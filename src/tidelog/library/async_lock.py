"""The lock for a program whose callers are coroutines of one event loop of its own.

Invariants: what would wait for long is awaited, at the beginning of a step; whatever else takes
the lock waits for a turn of tidelog's event loop at most, so the program's loop is never held for
longer. Each task of the program has a step of its own, and changes are made in one.
"""

import asyncio
from contextlib import suppress
from typing import Any

from tidelog.errors import ConfigError
from tidelog.library.state_lock import LoopLock, StateLock


def _this_task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:  # a thread without an event loop
        return None


class AsyncStateLock(StateLock):
    """Held by tidelog's event loop or a task of the program's."""

    _caller = staticmethod(_this_task)

    def __init__(self, shared: LoopLock) -> None:
        super().__init__(shared)
        self._changed: set[Any] = set()
        """Tasks that have changed something in the step that is open."""
        self._waiting: list[asyncio.Future[None]] = []
        """Tasks of the program that wait until a step may begin."""

    def _must_wait(self) -> bool:
        # For tidelog's loop alone: changes are made in steps, which have begun.
        return self._shared.loop_waits

    def changing(self) -> None:
        """As for threads; raises ConfigError outside of a step."""
        task = self._caller()
        if task is None or task not in self._steps:
            raise ConfigError(
                "a change of state",
                expected="one within `async with db.step():`, by the task that has begun the step",
                found="a change outside of a step",
                action="make it in a step: only there it can be awaited that there is room",
            )
        self._changed.add(task)
        super().changing()

    async def begin_step(self) -> None:
        """Wait until the calling task may begin a step, and begin it; at once when `closed`.

        In a step of its own it enters a block of it.
        """
        await self._begun()
        self.enter_block()

    async def _begun(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self.take()
            try:
                self._wait()
                if self.closed or not self._blocked():
                    self._steps.add(self._caller())
                    return
                turn: asyncio.Future[None] = loop.create_future()
                self._waiting.append(turn)
            finally:
                self.give()
            await turn

    def end_step(self) -> None:
        """The step of a task that has the lock has ended."""
        self._changed.discard(self._caller())
        super().end_step()

    def advancing(self) -> None:
        """A task notes a position in its step, which ends where its block does."""
        self.changing()

    @property
    def in_step(self) -> bool:
        """Whether the calling task has changed something in a step that has not ended."""
        return self._caller() in self._changed

    @property
    def open_steps(self) -> list[str]:
        """The names of the tasks whose step is open."""
        return [task.get_name() for task in self._steps if task is not None]

    def _update(self) -> None:
        super()._update()
        if self.closed or not (self._paused or self.blocks_steps):
            waiting, self._waiting = self._waiting, []
            for turn in waiting:
                with suppress(RuntimeError):  # the program's loop has ended
                    turn.get_loop().call_soon_threadsafe(_wake, turn)


def _wake(turn: "asyncio.Future[None]") -> None:
    if not turn.done():
        turn.set_result(None)
