"""How long a task works, and how long it waits because of back-pressure.

Invariant: a moment counts as work or as waiting, never as both.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tidelog.effects import Clock
from tidelog.events import Event

LONG_CALL_S: Final = 0.2
"""A call that holds the event loop for so long is reported."""

logger = logging.getLogger(__name__)


class LongCalls:
    """Warns of operators whose functions hold the event loop, once each, in all their subtasks."""

    def __init__(self) -> None:
        self._warned: set[str] = set()

    def took(self, operator: str, seconds: float) -> None:
        """A call took at least `LONG_CALL_S`."""
        if operator in self._warned:
            return
        self._warned.add(operator)
        Event.LONG_CALL.log(logger, operator=operator, milliseconds=seconds * 1000)


class WorkTime:
    """The stopwatch of one task; seconds since the start, spans that ended."""

    def __init__(self, clock: Clock, calls: LongCalls | None = None) -> None:
        self.clock = clock
        self._calls = calls if calls is not None else LongCalls()
        self.longest_call_s = 0.0
        """The longest time in which an operator held the event loop."""
        self.busy_s = 0.0
        self.backpressured_s = 0.0

    def called(self, operator: str, seconds: float) -> None:
        """An operator of the task held the event loop for so long."""
        self.longest_call_s = max(self.longest_call_s, seconds)
        if seconds >= LONG_CALL_S:
            self._calls.took(operator, seconds)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count what is done within, without the waiting in it."""
        started, waited = self.clock.monotonic(), self.backpressured_s
        try:
            yield
        finally:
            waited = self.backpressured_s - waited
            self.busy_s += self.clock.monotonic() - started - waited

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time within as back-pressure; enter it only where the task really waits."""
        started = self.clock.monotonic()
        try:
            yield
        finally:
            self.backpressured_s += self.clock.monotonic() - started
