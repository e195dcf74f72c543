"""Announces a barrier again when it may overtake: what an alignment decides depends on the time."""

import asyncio
from collections.abc import Callable

from tidelog.effects import Clock
from tidelog.runtime.channels.messages import Barrier


class BarrierReminder:
    """Announces the newest barrier at its deadline; `cancel` it when its task ends."""

    def __init__(self, clock: Clock, announce: Callable[[Barrier], None]) -> None:
        self._clock = clock
        self._announce = announce
        self._waiting: asyncio.Task[None] | None = None
        self._deadline: float | None = None
        self._barrier: Barrier | None = None

    def remind(self, barrier: Barrier, deadline: float | None) -> None:
        """Announce a barrier at this deadline, and at no earlier one; None: not at all."""
        before = self._barrier.checkpoint if self._barrier is not None else None
        if (deadline, barrier.checkpoint) == (self._deadline, before):
            return
        self._deadline, self._barrier = deadline, barrier
        self.cancel()
        if deadline is not None and deadline > self._clock.monotonic():
            self._waiting = asyncio.ensure_future(self._announce_at(deadline, barrier))

    def cancel(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()

    async def _announce_at(self, deadline: float, barrier: Barrier) -> None:
        await self._clock.sleep(deadline - self._clock.monotonic())
        self._announce(barrier)
