"""Locks and forks: in a forked process no thread runs that would release what it had taken.

Invariant: the thread that forks holds the locks of all registered objects meanwhile, so what they
guard is whole in the child and nobody has them there. What is released afterwards is exactly what
was taken: other threads make objects, and drop some, while one forks. In the child nothing knows an
object that was made so late.
"""

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeVar

from tidelog.concurrency import LiveObjects

T = TypeVar("T")


class LockedObjects(LiveObjects[T]):
    """The objects of one class that exist in this process, each with a lock of its own."""

    def __init__(self, lock_of: Callable[[T], Any], begin_anew: Callable[[T], None]) -> None:
        """`begin_anew` is called with each object in the child."""
        super().__init__()
        self._lock_of, self._begin_anew = lock_of, begin_anew
        self._forking = threading.local()
        os.register_at_fork(
            before=self._acquire, after_in_parent=self._release, after_in_child=self._begin_all_anew
        )

    def _acquire(self) -> None:
        self._forking.held = held = ExitStack()
        for each in self:
            held.enter_context(self._lock_of(each))

    def _release(self) -> None:
        self._forking.held.close()

    def _begin_all_anew(self) -> None:
        self._release()
        for each in self:
            self._begin_anew(each)
