"""The baton: a program's threads and the event loop beside them work on the same state in turn.

Invariants: whoever touches state holds the baton, and the event loop holds it whenever it runs any
code, so nothing that was written for one thread needs to know of others. Callers work in steps: a
step begins with a thread's first change and ends when the thread says so; while the baton is held
back no step is open and none begins, so that what is captured then is whole steps.

A lock alone would not do: a caller that takes it again at once wins against a thread that has to be
woken up first, again and again.
"""

import selectors
import threading
from collections.abc import Callable
from typing import Any

_me = threading.get_ident


class Baton:
    """Held by one thread at a time: the loop's or a caller's."""

    def __init__(self) -> None:
        lock = threading.Lock()
        self.take = lock.acquire
        self.give = lock.release
        self.busy = False
        """Whoever has taken the baton calls `after_you` before anything else."""
        self.over = False
        """The state is about to be closed: nobody may touch it any more, whoever has the baton."""
        self._turn = threading.Condition(lock)
        self._loop_waits = False
        self._wanted: Callable[[], None] | None = None
        """Called when the last open step has ended, while the baton is held back."""
        self._paused = False
        self._steps: set[int] = set()
        """Threads whose step is open."""

    def __enter__(self) -> None:
        """For the loop's thread: its whole life is within."""
        self.take()

    def __exit__(self, *_: object) -> None:
        self.give()

    def after_you(self) -> None:
        """A caller that has the baton lets the loop go first, and has it again.

        Waits while the baton is held back, unless the caller's step is open: it has to end.
        """
        me = threading.get_ident()
        while not self.over and (
            self._loop_waits or self._paused or (self._wanted is not None and me not in self._steps)
        ):
            self._turn.wait()

    def changing(self) -> None:
        """A caller that has the baton changes state: its step is open from now on."""
        self._steps.add(_me())

    def end_step(self) -> None:
        """The step of a caller that has the baton has ended."""
        self._steps.discard(threading.get_ident())
        if self._wanted is not None and not self._steps:
            self._wanted()

    @property
    def in_step(self) -> bool:
        """Whether the step of the calling thread is open."""
        return threading.get_ident() in self._steps

    @property
    def open_steps(self) -> list[str]:
        """The names of the threads whose step is open."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        return [names.get(thread, "one that has ended") for thread in self._steps]

    def hold_back(self, held: Callable[[], None]) -> None:
        """For the loop: no step begins from now on; `held` is called when none is open, at once or
        by the thread that ends the last one.
        """
        self._wanted = held
        self._update()
        if not self._steps:
            held()

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

    def take_for_loop(self) -> None:
        """The loop takes the baton, before any caller that asks from now on."""
        if not self.take(blocking=False):
            self._loop_waits = self.busy = True
            self.take()
            self._loop_waits = False
            self._update()

    def _update(self) -> None:
        self.busy = self.over or self._paused or self._wanted is not None
        # Also while the baton is held back: who waited for the loop may have a step to end.
        self._turn.notify_all()


class BatonSelector(selectors.DefaultSelector):
    """The selector of an event loop that holds the baton but while it waits."""

    def __init__(self, baton: Baton) -> None:
        super().__init__()
        self._baton = baton

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        """Wait for events without the baton."""
        self._baton.give()
        try:
            return super().select(timeout)
        finally:
            self._baton.take_for_loop()
