"""The baton for a program whose callers are coroutines of one event loop of its own.

Invariants: what would wait for long is awaited, at the beginning of a step; whatever else takes
the baton waits for a turn of tidelog's event loop at most, so the program's loop is never held for
longer. Each task of the program has a step of its own, and changes are made in one.
"""

import asyncio
from contextlib import suppress
from typing import Any

from tidelog.errors import ConfigError
from tidelog.library.baton import Baton, LoopLock


class CoroutineBaton(Baton):
    """Held by tidelog's event loop or a task of the program's."""

    def __init__(self, shared: LoopLock) -> None:
        super().__init__(shared)
        self._changed: set[Any] = set()
        """Tasks that have changed something in the step that is open."""
        self._waiting: list[asyncio.Future[None]] = []
        """Tasks of the program that wait until a step may begin."""

    def after_you(self) -> None:
        """A caller that has the baton lets tidelog's loop go first, and has it again.

        Nothing else is waited for: changes are made in steps, which have begun.
        """
        while not self.over and self._shared.loop_waits:
            self._shared.turn.wait()

    def changing(self) -> None:
        """A caller that has the baton changes state; raises ConfigError outside of a step."""
        task = _this_task()
        if task is None or task not in self._steps:
            raise ConfigError(
                "a change of state",
                expected="one within `async with db.step():`, by the task that has begun the step",
                found="a change outside of a step",
                action="make it in a step: only there it can be awaited that there is room",
            )
        self._changed.add(task)

    async def begin_step(self) -> None:
        """Wait until the calling task may begin a step, and begin it; at once when `over`."""
        task, loop = _this_task(), asyncio.get_running_loop()
        while True:
            self.take()
            try:
                self.after_you()
                if self.over or not self._closed_to(task):
                    self._steps.add(task)
                    return
                turn: asyncio.Future[None] = loop.create_future()
                self._waiting.append(turn)
            finally:
                self.give()
            await turn

    def end_step(self) -> None:
        """The step of a task that has the baton has ended."""
        task = _this_task()
        self._changed.discard(task)
        self._ended(task)

    def advanced(self) -> None:
        """Nothing: a step ends where its block does."""

    @property
    def has_begun(self) -> bool:
        """Whether a step of the calling task is open."""
        return _this_task() in self._steps

    @property
    def in_step(self) -> bool:
        """Whether the calling task has changed something in a step that has not ended."""
        return _this_task() in self._changed

    @property
    def open_steps(self) -> list[str]:
        """The names of the tasks whose step is open."""
        return [task.get_name() for task in self._steps if task is not None]

    def _update(self) -> None:
        super()._update()
        if self.over or not (self._paused or self._wanted is not None):
            waiting, self._waiting = self._waiting, []
            for turn in waiting:
                with suppress(RuntimeError):  # the program's loop has ended
                    turn.get_loop().call_soon_threadsafe(_wake, turn)


def _this_task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:  # a thread without an event loop
        return None


def _wake(turn: "asyncio.Future[None]") -> None:
    if not turn.done():
        turn.set_result(None)
