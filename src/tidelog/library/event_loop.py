"""tidelog's event loop next to a program: one thread for all databases that the program has open.

Invariants: the loop has its lock whenever it runs any code, so nothing that was written for one
thread needs to know of the program's threads; a caller has it within one operation, and nobody who
has it waits for anything else.
"""

import asyncio
import concurrent.futures
import logging
import os
import selectors
import sys
import threading
import weakref
from collections.abc import Coroutine
from threading import get_ident
from types import FrameType
from typing import Any, Final, TypeVar

from tidelog import effects
from tidelog.effects import Effects, SystemClock, daemon_thread, hold_thread, loop_thread
from tidelog.errors import ConfigError
from tidelog.events import Event

T = TypeVar("T")

logger = logging.getLogger(__name__)

_LONG_TURN_S: Final = 5.0
"""A turn of the loop takes milliseconds: each time after so long somebody looks why."""
_locks: "Final[weakref.WeakSet[LoopLock]]" = weakref.WeakSet()
"""Those of all databases and views that this process has open."""


class LoopLock:
    """A plain lock, and what it is taken for. Python interrupts nothing between taking one of its
    own in a `with` and the block: a caller that is interrupted, as by Ctrl-C, never keeps it.
    """

    def __init__(self) -> None:
        # Reentrant, so that a signal handler or finalizer amid an operation finds out where it is.
        self.lock = threading.RLock()
        self.amid = False
        """Who has taken the lock is amid an operation, or in a turn of the loop."""
        self.loop_waits = False
        """Callers leave the lock to the loop: one that takes it again at once would win against a
        thread that has to be woken up first, again and again."""
        self.turns = 0
        """The loop's turns; negative while it waits for events."""
        self.loop_thread: int | None = None
        self.forked = False
        """In a process that was forked from that of the databases, where nobody works on them."""
        _locks.add(self)

    def __enter__(self) -> None:
        """For the loop's thread, as long as it lives."""
        self.loop_thread, self.turns = get_ident(), 1
        self.take()

    def __exit__(self, *_: object) -> None:
        self.turns = 0
        self.release()

    def take(self) -> None:
        """The loop takes the lock, before any caller that asks from now on."""
        if not self.lock.acquire(blocking=False):
            self.loop_waits = True
            self.lock.acquire()
            self.loop_waits = False
        self.amid = True

    def release(self) -> None:
        """The loop waits, or has ended."""
        self.amid = False
        self.lock.release()

    def refuse_amid(self) -> None:
        """Raise ConfigError where the caller is amid an operation, or runs in the loop's thread: it
        would wait for itself.
        """
        with self.lock:
            if self.amid or get_ident() == self.loop_thread:
                raise amid_another()


def amid_another() -> ConfigError:
    return ConfigError(
        "an operation on a database",
        expected="it between two operations",
        found="a call amid one, as of a signal handler or a finalizer, which would wait for it for "
        "ever",
        action="raise an exception in the handler, or set a flag that the loop looks at; let a "
        "finalizer put what is to be done into a queue",
    )


def _before_fork() -> None:
    for loop_lock in list(_locks):
        loop_lock.lock.acquire()


def _after_fork() -> None:
    for loop_lock in list(_locks):
        loop_lock.lock.release()


def _after_fork_in_child() -> None:
    for loop_lock in list(_locks):
        # No loop takes it back: who works on a state looks closer.
        loop_lock.forked = loop_lock.loop_waits = True
        loop_lock.lock.release()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child
)


class _Selector(selectors.DefaultSelector):
    """The selector of an event loop that has the lock but while it waits."""

    def __init__(self, lock: LoopLock) -> None:
        super().__init__()
        self._lock = lock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        lock = self._lock
        lock.turns = -lock.turns
        lock.release()
        try:
            return super().select(timeout)
        finally:
            lock.turns = 1 - lock.turns
            lock.take()


class _Clock(SystemClock):
    """The machine's clocks for what runs in the loop; who gives way there gives up the lock too."""

    def __init__(self, lock: LoopLock) -> None:
        self._lock = lock

    def hand_over(self, seconds: float) -> None:
        self._lock.release()
        try:
            hold_thread(seconds)
        finally:
            self._lock.turns += 1
            self._lock.take()


class EventLoop:
    """An event loop on a thread of its own, with the effects of what runs in it."""

    def __init__(self) -> None:
        self.lock = LoopLock()
        self.effects = Effects(clock=_Clock(self.lock))
        self._loop, self._thread = loop_thread(_Selector(self.lock), self.lock)
        self._closed = threading.Event()
        daemon_thread(self._watch, "tidelog-watch")

    @property
    def forked(self) -> bool:
        """Whether the caller is in a process that was forked from that of the loop."""
        return self.lock.forked

    def start(self, work: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        """Run in the loop, without waiting for it; may be called anywhere."""
        try:
            self._check_runs()
        except ConfigError:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def check(self) -> None:
        """Raise ConfigError where the loop never answers: who asks it would wait for ever."""
        self._check_runs()
        self.lock.refuse_amid()

    def _check_runs(self) -> None:
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
        try:
            self.check()
        except ConfigError:
            work.close()
            raise
        # No future: a caller that is interrupted while it waits may keep the lock of one.
        completion = threading.Lock()
        completion.acquire()
        running: list[asyncio.Task[T]] = []

        def begin() -> None:
            running.append(asyncio.ensure_future(work))
            running[0].add_done_callback(lambda _: completion.release())

        def cancel() -> None:
            running[0].cancel() if running else work.close()

        try:
            self._loop.call_soon_threadsafe(begin)
            while not completion.acquire(timeout=_LONG_TURN_S):
                if not self._thread.is_alive():
                    raise concurrent.futures.CancelledError("another thread has closed it")
        except BaseException:
            self._loop.call_soon_threadsafe(cancel)
            raise
        return running[0].result()

    async def ask_async(self, work: Coroutine[Any, Any, T], *, to_end: bool = False) -> T:
        """As `ask`, awaited in another loop; `to_end`: a cancelled caller waits for the end."""
        future = asyncio.wrap_future(self.start(work))
        return await (effects.to_end(future) if to_end else future)

    def close(self) -> None:
        """End the thread; what an interrupted caller has left in it releases everything first."""
        if sys.is_finalizing():  # no thread ends any more
            return
        self._closed.set()
        self._loop.call_soon_threadsafe(self._loop.stop)
        try:
            self._thread.join()
        finally:
            self.effects.offload.close()

    def _watch(self) -> None:
        """Say what holds up the loop, and with it all operations: nothing else ever would."""
        turn = 0
        while not self._closed.wait(_LONG_TURN_S):
            if self.lock.turns == turn and turn > 0:
                for thread, line in self._at_work():
                    Event.LOOP_HELD_UP.log(logger, seconds=_LONG_TURN_S, thread=thread, place=line)
            turn = self.lock.turns

    def _at_work(self) -> list[tuple[str, str]]:
        """Who works on a state, and where: the loop's thread, or those amid an operation."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        caller_works = self.lock.loop_waits
        return [
            (names.get(thread, str(thread)), f"{frame.f_code.co_filename}:{frame.f_lineno}")
            for thread, frame in sys._current_frames().items()
            if (_is_amid(frame) if caller_works else thread == self.lock.loop_thread)
        ]


def _is_amid(inner: FrameType) -> bool:
    """Whether the innermost call of a thread is one that an operation makes."""
    outer: FrameType | None = inner
    while outer is not None and outer.f_globals.get("__name__") != _OPERATIONS:
        outer = outer.f_back
    return outer is not None and outer is not inner


_OPERATIONS: Final = "tidelog.library.steps"
"""The module whose functions call operations with the lock."""


def in_another_process(what: str) -> ConfigError:
    """A fork takes no thread along: without the event loop nothing is durable, or ever answered."""
    return ConfigError(
        what,
        expected="the process that has opened it",
        found="one that was forked from that process",
        action="open it in the children alone, or have them spawned; several processes share an "
        "application with tidelog.open_partitions",
    )
