"""The lock of a state: a program and the event loop next to it work on the state in turn.

Invariants: state is touched with the lock alone. Callers work in steps: a step begins with a
caller's first change and ends when it says so, within blocks (`with db.step()`) at the end of the
outermost one; the step of a thread that ends before is never captured. While steps are blocked none
is open and none begins, so that what is captured then is whole steps. All databases of one event
loop share one `LoopLock`; each database of a program has steps of its own, which block no other's.
"""

import asyncio
import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from tidelog.errors import ConfigError
from tidelog.library.event_loop import LoopLock

_LOOK_EVERY: Final = 1024
"""Changes after which the event loop is to see whether a flush is due."""


_open_locks: Final[list["StateLock"]] = []
"""The locks of all databases that this process has open."""


class StateLock:
    """Held by one thread at a time: the loop's or a caller's.

    Operations are done `with lock.held:`, and begin with `yield_to_loop()` if it is `busy`. Python
    interrupts nothing between taking a lock of its own in a `with` and the block: a caller that is
    interrupted, as by Ctrl-C, never keeps it.
    """

    _caller: Callable[[], Any] = staticmethod(threading.get_ident)
    """Who is calling: a thread; `AsyncStateLock`: a task."""

    def __init__(
        self,
        shared: LoopLock,
        look: Callable[[], None],
        ending: Callable[[], Exception],
        abandoned: Callable[[str], None],
    ) -> None:
        """`look` is called by a caller that has the lock when much was changed. `ending` is what
        operations raise once the state is closed; it may wait for the end, without the lock.
        `abandoned` is called with the name of a thread that ends with its step open, by itself.
        """
        self.held = shared.lock
        self.busy = False
        """Who has taken the lock calls `yield_to_loop` before anything else."""
        self.closed = False
        """Nobody may touch the state any more, with the lock or without."""
        self._shared = shared
        self._look, self._ending, self._abandoned = look, ending, abandoned
        self._steps_ended: Callable[[], None] | None = None
        """Called when the last open step has ended, while steps are blocked."""
        self._paused = False
        self._steps: dict[Any, bool] = {}
        """Callers whose step is open, and whether they have changed something in it."""
        self._blocks: dict[Any, int] = {}
        """Callers that are within blocks of a step, and in how many."""
        self._waiting: list[asyncio.Future[None]] = []
        """For each task that waits until a step may begin."""
        self._threads = threading.local()
        """Thread-local: an `_EndOfThread` for each thread that has begun a step."""
        self._changes = 0
        """Since the loop looked whether a flush is due."""

    def yield_to_loop(self) -> None:
        """A caller that has the lock lets the loop go first, and has it again, also if this raises
        what has closed the state.

        Waits while steps are blocked, unless a step of the caller is open: it has to end. In
        whichever database: two that wait for each other's steps would wait for ever.
        """
        self._wait()
        if self.closed:
            try:
                self.held.release()
                error = self._ending()
            finally:
                self._shared.turn.take()
            raise error

    def _wait(self) -> None:
        while not self.closed and self._must_wait():
            self._shared.turn.wait()

    def _must_wait(self) -> bool:
        return self._shared.loop_waits or self._blocked()

    def _blocked(self) -> bool:
        """Whether the caller has to wait before it may begin a step."""
        caller = self._caller()
        return self._paused or (
            self._steps_ended is not None
            and not any(state.is_open(caller) for state in tuple(_open_locks))
        )

    def changing(self) -> None:
        """A caller that has the lock is about to change state: its step is open from now on."""
        caller = self._caller()
        if caller not in self._steps:
            self._steps[caller] = True
            if not hasattr(self._threads, "end"):
                self._threads.end = _EndOfThread(self)
        self._changes += 1
        if self._changes >= _LOOK_EVERY:
            self._changes = 0
            self._look()
            self._shared.give_way()
            if self.busy:
                self.yield_to_loop()

    def advancing(self) -> None:
        """A caller that has the lock is about to note a position, which ends its step, or belongs
        to the block that it is in.
        """
        if self._blocks and self._caller() in self._blocks:
            self.changing()
        else:
            self._end_step()

    def end_step(self) -> None:
        """What the caller has changed may be part of a checkpoint."""
        with self.held:
            self._end_step()

    def _end_step(self) -> None:
        self._steps.pop(self._caller(), None)
        if self._steps_ended is not None and not self._steps:
            self._steps_ended()

    def enter_block(self) -> None:
        """The caller's step does not end before it has left this block."""
        caller = self._caller()
        self._blocks[caller] = self._blocks.get(caller, 0) + 1

    def leave_block(self) -> None:
        """Leave the innermost block of the caller; its step ends with the outermost one."""
        caller = self._caller()
        self._blocks[caller] -= 1
        if not self._blocks[caller]:
            del self._blocks[caller]
            self.end_step()

    @property
    def in_block(self) -> bool:
        return self._caller() in self._blocks

    @property
    def in_step(self) -> bool:
        """Whether the caller has changed something in a step that has not ended."""
        return self._steps.get(self._caller(), False)

    def is_open(self, caller: Any) -> bool:
        return caller in self._steps

    def thread_ended(self, thread: int, name: str) -> None:
        """For a thread at its end: if its step is open, nobody can end it any more."""
        self._blocks.pop(thread, None)
        if thread in self._steps and not self.closed:
            # A thread that begins later may get the same number: the step is nobody's now, and open
            # at every moment.
            self._steps[name] = True
            del self._steps[thread]
            self._abandoned(name)

    # What follows is for the loop.

    def begin(self) -> None:
        """Callers may take the lock from now on."""
        self._shared.states.append(self)
        _open_locks.append(self)

    def look_at_next(self) -> None:
        """Call `look` with the next change."""
        self._changes = _LOOK_EVERY - 1

    @property
    def open_steps(self) -> list[str]:
        """The names of the threads or tasks whose step is open."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        return [names.get(each, str(each)) for each in list(self._steps)]

    def block_steps(self, none_open: Callable[[], None]) -> None:
        """Callers without an open step begin none from now on; `none_open` is called by the one
        that ends the last step.
        """
        self._steps_ended = none_open
        self._updated()

    def allow_steps(self) -> None:
        """Steps may begin again."""
        self._steps_ended = None
        self._updated()

    def pause(self, paused: bool) -> None:
        """No caller works on the state until the pause is over, in a step or not."""
        self._paused = paused
        self._updated()

    def end(self) -> None:
        """Nobody touches the state any more."""
        self.closed = True
        self._updated()
        if self in self._shared.states:
            self._shared.states.remove(self)
            _open_locks.remove(self)

    def forked(self) -> None:
        """In a process that was forked from this one nobody touches the state, nor has the lock."""
        self.closed = self.busy = True
        if self.held.locked():
            self.held.release()

    def update(self) -> None:
        """See again whether a caller may go on at once."""
        self.busy = self.closed or self._paused or self._steps_ended is not None

    def _updated(self) -> None:
        self.update()
        # Also while steps are blocked: who waited for the loop may have a step to end.
        self._shared.turn.notify_all()
        if self.closed or not self.busy:
            waiting, self._waiting = self._waiting, []
            for turn in waiting:
                with suppress(RuntimeError):  # the program's loop has ended
                    turn.get_loop().call_soon_threadsafe(_wake, turn)


def _forked() -> None:
    for state in _open_locks:
        state.forked()


os.register_at_fork(after_in_child=_forked)


class _EndOfThread:
    """Notices the end of the thread that has made it: Python drops what is local to a thread then.

    Nothing else would say so at once, and a later thread may have the same number.
    """

    def __init__(self, lock: StateLock) -> None:
        self._lock = weakref.ref(lock)
        thread = threading.current_thread()
        self._thread, self._name = threading.get_ident(), thread.name

    def __del__(self) -> None:
        lock = self._lock()
        if lock is not None and not sys.is_finalizing():
            lock.thread_ended(self._thread, self._name)


def _this_task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:  # a thread without an event loop
        return None


class AsyncStateLock(StateLock):
    """For a program whose callers are tasks of an event loop of its own.

    What would wait for long is awaited, at the beginning of a step; whatever else takes the lock
    waits for a turn of tidelog's loop at most. Changes are made in steps, which have begun.
    """

    _caller = staticmethod(_this_task)

    def _must_wait(self) -> bool:
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
        self._steps[task] = True
        super().changing()

    def advancing(self) -> None:
        """A task notes a position in its step, which ends where its block does."""
        self.changing()

    async def begin_step(self) -> None:
        """Wait until the calling task may begin a step, and enter a block of it; at once when
        `closed`, or in a step of its own.
        """
        loop = asyncio.get_running_loop()
        while True:
            with self.held:
                self._wait()
                if self.closed or not self._blocked():
                    self._steps.setdefault(self._caller(), False)
                    break
                turn = loop.create_future()
                self._waiting.append(turn)
            await turn
        self.enter_block()

    @property
    def open_steps(self) -> list[str]:
        return [task.get_name() for task in self._steps if task is not None]


def _wake(turn: "asyncio.Future[None]") -> None:
    if not turn.done():
        turn.set_result(None)
