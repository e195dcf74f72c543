"""The baton: a program's threads and the event loop beside them work on the same state in turn.

Invariants: whoever touches state holds the baton, and the event loop holds it whenever it runs any
code, so nothing that was written for one thread needs to know of others. Callers work in steps: a
step begins with a thread's first change and ends when the thread says so; while the baton is held
back no step is open and none begins, so that what is captured then is whole steps. All databases of
one event loop share one lock, and each has a baton: holding back one database stops no other.

A lock alone would not do: a caller that takes it again at once wins against a thread that has to be
woken up first, again and again.
"""

import selectors
import threading
from collections.abc import Callable
from typing import Any

from tidelog.effects import hold_thread

_me = threading.get_ident


class LoopLock:
    """The lock that an event loop holds whenever it runs, for the batons of its databases."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.turn = threading.Condition(self.lock)
        self.loop_waits = False
        self.batons: list[Baton] = []
        """The batons of all open databases."""

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
            for baton in self.batons:
                baton.busy = True
            self.lock.acquire()
            self.loop_waits = False
            for baton in self.batons:
                baton.update()
            self.turn.notify_all()


class Baton:
    """Held by one thread at a time: the loop's or a caller's."""

    def __init__(self, shared: LoopLock) -> None:
        self.take = shared.lock.acquire
        self.give = shared.lock.release
        self.busy = False
        """Whoever has taken the baton calls `after_you` before anything else."""
        self.over = False
        """The state is about to be closed: nobody may touch it any more, whoever has the baton."""
        self._shared = shared
        self._wanted: Callable[[], None] | None = None
        """Called when the last open step has ended, while the baton is held back."""
        self._paused = False
        self._steps: set[Any] = set()
        """Threads whose step is open; `CoroutineBaton`: tasks."""

    def begin(self) -> None:
        """For the loop: callers may take the baton from now on."""
        self._shared.batons.append(self)

    def after_you(self) -> None:
        """A caller that has the baton lets the loop go first, and has it again.

        Waits while the baton is held back, unless a step of the caller is open: it has to end. In
        whichever database: two that wait for each other's steps would wait for ever.
        """
        shared, me = self._shared, _me()
        while not self.over and (shared.loop_waits or self._closed_to(me)):
            shared.turn.wait()

    def _closed_to(self, caller: Any) -> bool:
        """Whether a caller has to wait before it may begin a step."""
        return self._paused or (
            self._wanted is not None
            and not any(caller in each._steps for each in self._shared.batons)
        )

    def changing(self) -> None:
        """A caller that has the baton changes state: its step is open from now on."""
        self._steps.add(_me())

    def end_step(self) -> None:
        """The step of a caller that has the baton has ended."""
        self._ended(_me())

    def advanced(self) -> None:
        """A caller that has the baton has noted a position: that ends its step."""
        self.end_step()

    def _ended(self, caller: Any) -> None:
        self._steps.discard(caller)
        if self._wanted is not None and not self._steps:
            self._wanted()

    @property
    def in_step(self) -> bool:
        """Whether the calling thread has changed something in a step that has not ended."""
        return _me() in self._steps

    @property
    def open_steps(self) -> list[str]:
        """The names of the threads whose step is open."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        return [names.get(thread, "one that has ended") for thread in self._steps]

    @property
    def any_step(self) -> bool:
        """Whether the step of any thread is open."""
        return bool(self._steps)

    def hold_back(self, none_open: Callable[[], None]) -> None:
        """For the loop: threads without an open step begin none from now on; `none_open` is called
        by the thread that ends the last one.
        """
        self._wanted = none_open
        self._update()

    def let_go(self) -> None:
        """For the loop: steps may begin again."""
        self._wanted = None
        self._update()

    def pause(self, paused: bool) -> None:
        """For the loop: nobody gets the baton until the pause is over, in a step or not."""
        self._paused = paused
        self._update()

    def end(self) -> None:
        """For the loop: nobody touches the state any more."""
        self.over = True
        self._update()
        if self in self._shared.batons:
            self._shared.batons.remove(self)

    def update(self) -> None:
        """See again whether a caller may go on at once."""
        self.busy = self.over or self._paused or self._wanted is not None

    def _update(self) -> None:
        self.update()
        # Also while the baton is held back: who waited for the loop may have a step to end.
        self._shared.turn.notify_all()


class BatonSelector(selectors.DefaultSelector):
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
