"""How long a task works, and how long it stands still because others are behind.

Invariant: a moment counts as work or as waiting, never as both.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from tidelog.effects import Clock


class WorkTime:
    """The stopwatch of one task; seconds since the start, spans that ended."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.busy_s = 0.0
        self.backpressured_s = 0.0

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count what is done within, without the waiting in it."""
        started, waited = self._clock.monotonic(), self.backpressured_s
        try:
            yield
        finally:
            waited = self.backpressured_s - waited
            self.busy_s += self._clock.monotonic() - started - waited

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count as back-pressure what is waited for within; to be entered for real waits only."""
        started = self._clock.monotonic()
        try:
            yield
        finally:
            self.backpressured_s += self._clock.monotonic() - started
