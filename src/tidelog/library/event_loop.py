"""The event loop beside a program: one thread for all databases that the program has open.

Invariant: what runs in the loop holds the lock that the states of the databases share.
"""

import asyncio
import concurrent.futures
from collections.abc import Coroutine
from typing import Any, TypeVar

from tidelog.effects import Effects, SystemClock, loop_thread
from tidelog.library.state_lock import LockedSelector, LoopLock

T = TypeVar("T")


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
        self._loop = loop_thread(LockedSelector(self.lock), self.lock)

    def start(self, work: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        """Run in the loop; may be called in the loop as well."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Run in the loop, and wait for the end; an interrupted caller cancels it."""
        asked = self.start(work)
        try:
            return asked.result()
        except BaseException:
            asked.cancel()
            raise

    def close(self) -> None:
        """End the thread; nothing may run in it any more."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self.effects.offload.close()
