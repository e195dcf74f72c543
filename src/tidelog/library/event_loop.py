"""tidelog's event loop beside a program: one thread, and one lock for all that it works on.

Invariants: the loop has the lock whenever it runs any code, and releases it only while it waits for
events or gives way; a caller has the lock for one operation, and waits for nothing else with it. So
code that was written for the thread of one event loop needs to know nothing of the program's
threads.

How: an event loop of asyncio waits in `select` of its selector, and nowhere else. The loop gets a
selector whose `select` releases the lock, waits, and takes the lock again. Both are documented:
`asyncio.SelectorEventLoop(selector)` and `selectors.BaseSelector.select`. Nothing of asyncio is
replaced, and no private name of it is used. Tried with Python 3.11.

Nothing simpler keeps the invariants: a lock for each callback of the loop needs asyncio's private
`Handle._run`; locks where state is touched slow down all jobs, and one is forgotten; a message to
the loop for each operation costs 50 microseconds; a loop that runs in the program's own thread
uploads nothing while the program does something else (docs/decisions/016-own-loop.md).
"""

import asyncio
import concurrent.futures
import logging
import selectors
import sys
import threading
from collections.abc import Coroutine
from threading import get_ident
from typing import Any, Final, TypeVar

from tidelog import concurrency
from tidelog.effects import Effects, SystemClock, daemon_thread, hold_thread, loop_thread
from tidelog.errors import ConfigError
from tidelog.events import Event
from tidelog.fork import LockedObjects

T = TypeVar("T")

logger = logging.getLogger(__name__)

_LONG_TURN_S: Final = 5.0
"""A turn of the loop takes milliseconds. One that takes longer than this is reported."""

LOOP: Final = object()


class LoopLock:
    """The lock of all states of one event loop, and who works with it.

    A caller takes `lock` in a `with`: Python interrupts nothing between taking a lock of its own
    there and the block, so a caller that is interrupted, as by Ctrl-C, never keeps it.
    """

    def __init__(self) -> None:
        # Reentrant, so that a signal handler or finalizer within an operation sees that it is.
        self.lock = threading.RLock()
        self.user: object = None
        """Who works with the lock: the operation of a caller, or `LOOP`; None: nobody."""
        self.loop_waits = False
        """Callers leave the lock to the loop: one that takes it again at once would always win
        against a thread that has to be woken up first."""
        self.turns = 0
        """How often the loop has taken the lock."""
        self.selects = True
        """The loop waits for events, without the lock."""
        self.loop_thread: int | None = None
        self.forked = False
        """In a process that was forked from that of the databases, where nobody works on them."""
        _locks.add(self)

    def __enter__(self) -> None:
        """For the loop's thread, as long as it lives."""
        self.loop_thread = get_ident()
        self.take()

    def __exit__(self, *_: object) -> None:
        self.release()

    def take(self) -> None:
        """The loop takes the lock, before any caller that asks from now on."""
        self.selects = False
        if not self.lock.acquire(blocking=False):
            self.loop_waits = True
            self.lock.acquire()
            self.loop_waits = False
        self.turns += 1
        self.user = LOOP

    def release(self, *, selects: bool = True) -> None:
        """The loop waits for events, or has ended; else it only gives way to callers."""
        self.selects, self.user = selects, None
        self.lock.release()

    def begin_anew(self) -> None:
        """In a forked process."""
        # Callers that see `loop_waits` look at `forked` next: the loop never takes this lock.
        self.forked = self.loop_waits = True

    def check_between_operations(self) -> None:
        """Raise ConfigError within an operation or the loop's thread: it would wait for itself."""
        with self.lock:
            if self.user or get_ident() == self.loop_thread:
                raise ConfigError(
                    "an operation on a database",
                    expected="it between two operations",
                    found="a call amid one, as of a signal handler or a finalizer, which would "
                    "wait for it for ever",
                    action="raise an exception in the handler, or set a flag that the loop looks "
                    "at; let a finalizer put what is to be done into a queue",
                )


_locks: Final[LockedObjects[LoopLock]] = LockedObjects(lambda each: each.lock, LoopLock.begin_anew)
"""The locks of all databases and views that this process has open."""


class _Selector(selectors.DefaultSelector):
    """The selector of an event loop that has the lock except while it waits."""

    def __init__(self, lock: LoopLock) -> None:
        super().__init__()
        self._lock = lock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        self._lock.release()
        try:
            return super().select(timeout)
        finally:
            self._lock.take()


class _Clock(SystemClock):
    """The machine's clocks for what runs in the loop; giving way there releases the lock, too."""

    def __init__(self, lock: LoopLock) -> None:
        self._lock = lock

    def hand_over(self, seconds: float) -> None:
        self._lock.release(selects=False)
        try:
            hold_thread(seconds)
        finally:
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
        self.lock.check_between_operations()

    def _check_runs(self) -> None:
        if self.forked:
            raise forked_error("a database")
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
        # Not a future: a caller that is interrupted while it waits may keep the future's lock.
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
        return await (concurrency.to_end(future) if to_end else future)

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
        """Report what holds up the loop, and all operations with it: no operation can do so."""
        lock, turns = self.lock, 0
        while not self._closed.wait(_LONG_TURN_S):
            if lock.turns == turns and not lock.selects:
                thread, place = self._lock_user()
                Event.LOOP_HELD_UP.log(logger, seconds=_LONG_TURN_S, thread=thread, place=place)
            turns = lock.turns

    def _lock_user(self) -> tuple[str, str]:
        """The thread that works with the lock, and where."""
        operation = self.lock.user
        if operation not in (LOOP, None):
            return "of the program", getattr(operation, "__qualname__", repr(operation))
        frame = sys._current_frames().get(self._thread.ident or 0)
        place = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "its end"
        return self._thread.name, place


def forked_error(what: str) -> ConfigError:
    """The error in a forked process, which has no thread of the event loop."""
    return ConfigError(
        what,
        expected="the process that has opened it",
        found="one that was forked from that process",
        action="open it in the children alone, or have them spawned; several processes share an "
        "application with tidelog.open_partitions",
    )
