"""tidelog's event loop next to a program: one thread for all databases that the program has open.

Invariant: the loop has its lock whenever it runs any code, so nothing that was written for one
thread needs to know of the program's threads. A plain lock would not do: a caller that takes it
again at once wins against a thread that has to be woken up first, again and again.
"""

import asyncio
import concurrent.futures
import logging
import os
import selectors
import sys
import threading
from collections.abc import Coroutine
from types import FrameType
from typing import Any, Final, Protocol, TypeVar

from tidelog import effects
from tidelog.effects import Effects, SystemClock, hold_thread, loop_thread
from tidelog.errors import ConfigError
from tidelog.events import Event

T = TypeVar("T")

logger = logging.getLogger(__name__)

_OF_OPERATIONS: Final = frozenset(
    f"tidelog.library.{module}" for module in ("handles", "program", "scan", "state_lock")
)
"""Modules whose functions have the lock."""
_LONG_WAIT_S: Final = 5.0
"""A caller keeps the lock for milliseconds: each time after so long the loop looks why."""
_MOMENT_S: Final = 1e-6
"""The system sleeps for some 60 microseconds at least: enough for the loop to be awake."""


class Locked(Protocol):
    """A state that its callers and the loop work on in turn."""

    busy: bool
    """A caller that has taken the lock lets the loop go first."""

    def update(self) -> None:
        """See again whether callers are `busy`."""


class _Turn(threading.Condition):
    """A condition of the lock. A caller that is interrupted, as by Ctrl-C, while it takes the lock
    again has the lock when that is raised: else it would release that of the loop.
    """

    def __init__(self, lock: threading.Lock) -> None:
        super().__init__(lock)
        # Nothing comes between taking a lock in a `with` and its block.
        kept = {"__enter__": lock.acquire, "__exit__": lambda *_: None}
        self._taken = type("Taken", (), kept)

    def take(self) -> None:
        """Take the lock, and raise what has interrupted that when it is taken."""
        taken, interruption = False, None
        while not taken:
            try:
                with self._taken():
                    taken = True
            except BaseException as error:
                interruption = error
        if interruption is not None:
            raise interruption

    def _acquire_restore(self, _: object) -> None:
        self.take()


class LoopLock:
    """The lock that an event loop holds whenever it runs, for the states of its databases."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.turn = _Turn(self.lock)
        self.loop_waits = False
        self.states: list[Locked] = []
        """Those of all open databases."""

    def __enter__(self) -> None:
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

        A thread that gives up the interpreter's lock now and then, and takes it again before any
        other has woken up, keeps it for ever: who waits for it demands it only where it was held
        for `sys.getswitchinterval()` without a break. Waking the loop up is such a break.
        """
        try:
            self.lock.release()
            hold_thread(_MOMENT_S)
        finally:
            self.turn.take()

    def take_for_loop(self) -> None:
        """The loop takes the lock, before any caller that asks from now on."""
        if not self.lock.acquire(blocking=False):
            self.loop_waits = True
            for state in self.states:
                state.busy = True
            while not self.lock.acquire(timeout=_LONG_WAIT_S):
                _report_interrupted_operations()
            self.loop_waits = False
            for state in self.states:
                state.update()
            self.turn.notify_all()


def interrupts_an_operation(frame: FrameType | None) -> bool:
    """Whether a call was made amid an operation of its own thread, as by a signal handler."""
    while frame is not None and not _is_of_operation(frame):
        frame = frame.f_back
    return frame is not None


def _is_of_operation(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") in _OF_OPERATIONS


def _report_interrupted_operations() -> None:
    """Name the threads that wait for an operation of their own: nothing else would ever say so."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for thread, inner in sys._current_frames().items():
        outer: FrameType | None = inner
        while outer is not None and _is_of_operation(outer):
            outer = outer.f_back
        if outer is not inner and interrupts_an_operation(outer):
            Event.OPERATION_INTERRUPTED.log(logger, thread=names.get(thread, str(thread)))


class _Selector(selectors.DefaultSelector):
    """The selector of an event loop that has the lock but while it waits."""

    def __init__(self, lock: LoopLock) -> None:
        super().__init__()
        self._lock = lock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        self._lock.lock.release()
        try:
            return super().select(timeout)
        finally:
            self._lock.take_for_loop()


class _Clock(SystemClock):
    """The machine's clocks for what runs in the loop; who gives way there gives up the lock too."""

    def __init__(self, lock: LoopLock) -> None:
        self._lock = lock

    def hand_over(self, seconds: float) -> None:
        self._lock.hand_over(seconds)


class EventLoop:
    """An event loop on a thread of its own, with the effects of what runs in it."""

    def __init__(self) -> None:
        self.lock = LoopLock()
        self.effects = Effects(clock=_Clock(self.lock))
        self._loop, self._thread = loop_thread(_Selector(self.lock), self.lock)
        self._process = os.getpid()

    @property
    def forked(self) -> bool:
        """Whether the caller is in a process that was forked from that of the loop."""
        return os.getpid() != self._process

    def start(self, work: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        """Run in the loop; may be called in the loop as well."""
        try:
            self.check()
        except ConfigError:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def check(self) -> None:
        """Raise ConfigError where the loop never runs: who asks it would wait for ever."""
        if self.forked:
            raise in_another_process("a database")
        if sys.is_finalizing():
            raise ConfigError(
                "a database",
                expected="an operation before the process ends",
                found="one in its end, as of `__del__`, when no other thread runs any more",
                action="open it in a `with` block, or close it before; what came after its last "
                "checkpoint is lost",
            )

    def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Run in the loop, and wait for the end; an interrupted caller cancels it."""
        asked = self.start(work)
        try:
            return asked.result()
        except BaseException:
            asked.cancel()
            raise

    async def ask_async(self, work: Coroutine[Any, Any, T], *, to_end: bool = False) -> T:
        """As `ask`, awaited in another loop; `to_end`: a cancelled caller waits for the end."""
        asked = asyncio.wrap_future(self.start(work))
        return await (effects.to_end(asked) if to_end else asked)

    def close(self) -> None:
        """End the thread; what an interrupted caller has left in it releases everything first."""
        if sys.is_finalizing():  # no thread ends any more
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        try:
            self._thread.join()
        finally:
            self.effects.offload.close()


def in_another_process(what: str) -> ConfigError:
    """A fork takes no thread along: without the event loop nothing is durable, or ever answered."""
    return ConfigError(
        what,
        expected="the process that has opened it",
        found="one that was forked from that process",
        action="open it after the fork, in one process; several share an application with "
        "tidelog.open_partitions",
    )
