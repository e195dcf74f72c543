"""The lock of a state: a program's threads and the event loop beside them work on it in turn.

Invariants: state is touched with the lock alone, and the event loop holds it whenever it runs any
code, so nothing that was written for one thread needs to know of others. Callers work in steps: a
step begins with a thread's first change and ends when the thread says so, within blocks
(`with db.step()`) at the end of the outermost one; the step of a thread that ends before is never
captured. While steps are blocked none is open and none begins, so that what is captured then is
whole steps. All databases of one event loop share one lock, a `LoopLock`; each has steps of its
own, which block no other's.

A lock alone would not do: a caller that takes it again at once wins against a thread that has to be
woken up first, again and again.
"""

import selectors
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final

from tidelog.effects import hold_thread
from tidelog.errors import ConfigError

_LOOK_EVERY: Final = 1024
"""Changes after which the event loop is told to see whether a flush is due."""
_MOMENT_S: Final = 1e-6
"""The system sleeps for some 60 microseconds at least: enough for the loop to be awake."""


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

    def give_way(self) -> None:
        """For a caller that has the lock: be without it for a moment, in which the loop goes on.

        A thread that lets go of the interpreter's lock now and then, and takes it again before any
        other has woken up, keeps it for ever: who waits for it demands it only where it was held
        for `sys.getswitchinterval()` without a break. Waking the loop up is such a break.
        """
        self.lock.release()
        try:
            hold_thread(_MOMENT_S)
        finally:
            self.lock.acquire()

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
        """Who has taken the lock calls `yield_to_loop` before anything else."""
        self.closed = False
        """Nobody may touch the state any more, with the lock or without."""
        self._shared = shared
        self._steps_ended: Callable[[], None] | None = None
        """Called when the last open step has ended, while steps are blocked."""
        self._paused = False
        self._steps: set[Any] = set()
        """Callers whose step is open."""
        self._blocks: dict[Any, int] = {}
        """Callers that are within blocks of a step, and in how many."""
        self._threads = threading.local()
        """Thread-local: an `_EndOfThread` for each thread that has begun a step."""
        self._changes = 0
        """Since the loop looked whether a flush is due."""

    def begin(
        self,
        look: Callable[[], None],
        ending: Callable[[], Exception],
        abandoned: Callable[[str], None],
    ) -> None:
        """For the loop: callers may take the lock from now on.

        `look` is called by a caller that has the lock when much was changed. `ending` is what
        operations raise once the state is closed; it may wait for the end, without the lock.
        `abandoned` is called with the name of a thread that ends with its step open, by itself.
        """
        self._look, self._ending, self._abandoned = look, ending, abandoned
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
        caller = self._caller()
        if caller not in self._steps:
            self._steps.add(caller)
            if not hasattr(self._threads, "end"):
                self._threads.end = _EndOfThread(self)
        self._changes += 1
        if self._changes >= _LOOK_EVERY:
            self._changes = 0
            self._look()
            self._shared.give_way()
            if self.busy:
                self.yield_to_loop()

    def look_at_next(self) -> None:
        """For the loop: it is to be told of the next change."""
        self._changes = _LOOK_EVERY - 1

    def end_step(self) -> None:
        """The step of a caller that has the lock has ended."""
        self._steps.discard(self._caller())
        if self._steps_ended is not None and not self._steps:
            self._steps_ended()

    def advancing(self) -> None:
        """A caller that has the lock is about to note a position, which ends its step, or belongs
        to the block that it is in.
        """
        if self._blocks and self._caller() in self._blocks:
            self.changing()
        else:
            self.end_step()

    def enter_block(self) -> None:
        """The caller's step does not end before it has left this block."""
        caller = self._caller()
        self._blocks[caller] = self._blocks.get(caller, 0) + 1

    def leave_block(self) -> bool:
        """Leave the innermost block of the caller; whether it was the outermost one too."""
        caller = self._caller()
        self._blocks[caller] -= 1
        if self._blocks[caller]:
            return False
        del self._blocks[caller]
        return True

    @property
    def in_block(self) -> bool:
        """Whether the caller is within a block of a step."""
        return self._caller() in self._blocks

    def thread_ended(self, thread: int, name: str) -> None:
        """For a thread at its end: if its step is open, nobody can end it any more."""
        self._blocks.pop(thread, None)
        if thread in self._steps and not self.closed:
            # A thread that begins later may get the same number: the step is nobody's now.
            self._steps.add(name)
            self._steps.discard(thread)
            self._abandoned(name)

    @property
    def in_step(self) -> bool:
        """Whether the calling thread has changed something in a step that has not ended."""
        return self._caller() in self._steps

    @property
    def open_steps(self) -> list[str]:
        """The names of the threads whose step is open."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        return [names.get(each, str(each)) for each in list(self._steps)]

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


class _EndOfThread:
    """Notices the end of the thread that has made it: Python drops what is local to a thread then.

    Nothing else would tell it at once, and a later thread may have the same number.
    """

    def __init__(self, lock: StateLock) -> None:
        self._lock = weakref.ref(lock)
        thread = threading.current_thread()
        self._thread, self._name = threading.get_ident(), thread.name

    def __del__(self) -> None:
        lock = self._lock()
        if lock is not None and not sys.is_finalizing():
            lock.thread_ended(self._thread, self._name)


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
