"""The lock of a state: a program's threads and the event loop beside them work on it in turn.

Invariants: whoever touches state holds the lock, and the event loop holds it whenever it runs any
code, so nothing that was written for one thread needs to know of others. Callers work in steps: a
step begins with a thread's first change and ends when the thread says so; while steps are blocked
none is open and none begins, so that what is captured then is whole steps. All databases of one
event loop share one lock, a `LoopLock`; each has steps of its own, which block no other's.

A lock alone would not do: a caller that takes it again at once wins against a thread that has to be
woken up first, again and again.
"""

import selectors
import threading
from collections.abc import Callable
from typing import Any, Final

from tidelog.effects import hold_thread
from tidelog.errors import ConfigError

_LOOK_EVERY: Final = 1024
"""Changes after which the event loop is told to see whether a flush is due."""


class LoopLock:
    """The lock that an event loop holds whenever it runs, for the states of its databases."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.turn = threading.Condition(self.lock)
        self.loop_waits = False
        self.states: list[StateLock] = []
        """The locks of all open databases."""

    def __enter__(self) -> None:
        """For the loop's thread: its whole life is within."""
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()

    def hand_over(self, seconds: float) -> None:
        """For the loop: be without the lock for so long that a caller who waits for it is awake."""
        self.lock.release()
        try:
            hold_thread(seconds)
        finally:
            self.take_for_loop()

    def take_for_loop(self) -> None:
        """The loop takes the lock, before any caller that asks from now on."""
        if not self.lock.acquire(blocking=False):
            self.loop_waits = True
            for state in self.states:
                state.busy = True
            self.lock.acquire()
            self.loop_waits = False
            for state in self.states:
                state.update()
            self.turn.notify_all()


class StateLock:
    """Held by one thread at a time: the loop's or a caller's.

    Operations happen more often than anything else, so they take and give it by themselves:
    `take()`, `yield_to_loop()` if it is `busy`, their work, and `give()` however that ends.
    """

    _caller: Callable[[], Any] = staticmethod(threading.get_ident)
    """Who is calling: a thread; `AsyncStateLock`: a task."""

    def __init__(self, shared: LoopLock) -> None:
        self.take = shared.lock.acquire
        self.give = shared.lock.release
        self.busy = False
        """Whoever has taken the lock calls `yield_to_loop` before anything else."""
        self.closed = False
        """Nobody may touch the state any more, whoever has the lock."""
        self._shared = shared
        self._steps_ended: Callable[[], None] | None = None
        """Called when the last open step has ended, while steps are blocked."""
        self._paused = False
        self._steps: set[Any] = set()
        """Callers whose step is open."""
        self._changes = 0
        """Since the loop looked whether a flush is due."""

    def begin(self, look: Callable[[], None], ending: Callable[[], Exception]) -> None:
        """For the loop: callers may take the lock from now on.

        `look` is called by a caller that has the lock when much was changed. `ending` is what
        operations raise once the state is closed; it may wait for the end, without the lock.
        """
        self._look, self._ending = look, ending
        self._shared.states.append(self)

    def __enter__(self) -> None:
        """Take the lock for an operation; raises what has closed the state."""
        self.take()
        try:
            if self.busy:
                self.yield_to_loop()
        except BaseException:
            self.give()
            raise

    def __exit__(self, *_: object) -> None:
        self.give()

    def yield_to_loop(self) -> None:
        """A caller that has the lock lets the loop go first, and has it again, also if this raises
        what has closed the state.

        Waits while steps are blocked, unless a step of the caller is open: it has to end. In
        whichever database: two that wait for each other's steps would wait for ever.
        """
        self._wait()
        if self.closed:
            self.give()
            try:
                error = self._ending()
            finally:
                self.take()
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
            and not any(caller in each._steps for each in self._shared.states)
        )

    def changing(self) -> None:
        """A caller that has the lock is about to change state: its step is open from now on."""
        self._steps.add(self._caller())
        self._changes += 1
        if self._changes >= _LOOK_EVERY:
            self._changes = 0
            self._look()

    def look_at_next(self) -> None:
        """For the loop: it is to be told of the next change."""
        self._changes = _LOOK_EVERY - 1

    def end_step(self) -> None:
        """The step of a caller that has the lock has ended."""
        self._steps.discard(self._caller())
        if self._steps_ended is not None and not self._steps:
            self._steps_ended()

    advancing = end_step
    """A caller that has the lock is about to note a position, which ends its step."""

    @property
    def in_step(self) -> bool:
        """Whether the calling thread has changed something in a step that has not ended."""
        return self._caller() in self._steps

    @property
    def open_steps(self) -> list[str]:
        """The names of the threads whose step is open."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        return [names.get(thread, "one that has ended") for thread in self._steps]

    @property
    def any_step(self) -> bool:
        """Whether the step of any thread is open."""
        return bool(self._steps)

    @property
    def blocks_steps(self) -> bool:
        """Whether callers without an open step wait before they begin one."""
        return self._steps_ended is not None

    def block_steps(self, none_open: Callable[[], None]) -> None:
        """For the loop: threads without an open step begin none from now on; `none_open` is called
        by the thread that ends the last one.
        """
        self._steps_ended = none_open
        self._update()

    def allow_steps(self) -> None:
        """For the loop: steps may begin again."""
        self._steps_ended = None
        self._update()

    def pause(self, paused: bool) -> None:
        """For the loop: no caller works on the state until the pause is over, in a step or not."""
        self._paused = paused
        self._update()

    def end(self) -> None:
        """For the loop: nobody touches the state any more."""
        self.closed = True
        self._update()
        if self in self._shared.states:
            self._shared.states.remove(self)

    def update(self) -> None:
        """See again whether a caller may go on at once."""
        self.busy = self.closed or self._paused or self._steps_ended is not None

    def _update(self) -> None:
        self.update()
        # Also while steps are blocked: who waited for the loop may have a step to end.
        self._shared.turn.notify_all()


class ReadersLock(StateLock):
    """The lock of a database that is only read: no step changes it."""

    def __init__(self, shared: LoopLock, what: str) -> None:
        super().__init__(shared)
        self._what = what

    def changing(self) -> None:
        """Raises ConfigError."""
        raise ConfigError(
            self._what,
            expected="reads: it shows what a checkpoint holds",
            found="a change",
            action="open the store without at= to change its states; fork it to change a copy",
        )


class LockedSelector(selectors.DefaultSelector):
    """The selector of an event loop that holds the lock but while it waits."""

    def __init__(self, lock: LoopLock) -> None:
        super().__init__()
        self._lock = lock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        """Wait for events without the lock."""
        self._lock.lock.release()
        try:
            return super().select(timeout)
        finally:
            self._lock.take_for_loop()
