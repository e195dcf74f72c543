"""A clock that tests move: sleeping takes no time, and every run takes the same steps."""

import asyncio
import heapq
from itertools import count
from random import Random

from tidelog.effects import Clock, Effects, InlineOffload

_MOST_TURNS = 20
"""Turns of the event loop after which time goes on, although something is still running.

Enough for chains of tasks that only wait for each other, and an end for what yields in a loop. Real
I/O and threads would need a look at the selector, so tests with this clock do their I/O inline.
"""


_START_MS = 1_700_000_000_000


class VirtualClock:
    """Implements `tidelog.effects.Clock` in virtual time.

    `advance` moves it by hand. With `auto=True` it jumps to the next sleeper by itself whenever
    the rest of the loop has come to a halt.
    """

    def __init__(self, *, auto: bool = True) -> None:
        self._auto = auto
        self._elapsed = 0.0
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._driver: asyncio.Task[None] | None = None

    def now_ms(self) -> int:
        return _START_MS + int(self._elapsed * 1000)

    def monotonic(self) -> float:
        return self._elapsed

    def hand_over(self, seconds: float) -> None:
        """No time passes: no thread is real."""

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._order), woken))
        if self._auto and (self._driver is None or self._driver.done()):
            self._driver = asyncio.ensure_future(self._drive())
        await woken

    def spend(self, seconds: float) -> None:
        """Something holds the event loop for so long, as a slow user function does."""
        self._elapsed += seconds

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass, waking every sleeper at its own moment and in order."""
        end = self._elapsed + seconds
        await _settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            self._wake_next()
            await _settle()
        self._elapsed = end

    async def _drive(self) -> None:
        while self._sleepers:
            await _settle()
            self._wake_next()

    def _wake_next(self) -> None:
        while self._sleepers:
            due, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():  # a cancelled sleeper moves no time
                self._elapsed = max(self._elapsed, due)
                woken.set_result(None)
                return


def in_virtual_time(seed: int, clock: Clock | None = None) -> Effects:
    """A world of this clock or a new one, with seeded chance and everything inline."""
    return Effects(clock or VirtualClock(), Random(seed), InlineOffload())


async def _settle() -> None:
    # Private, but asyncio has no other way to ask whether anything else can run now.
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    for _ in range(_MOST_TURNS):
        await asyncio.sleep(0)
        if not ready:
            return
