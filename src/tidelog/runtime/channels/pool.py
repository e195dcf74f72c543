"""Output pools: how many buffers a task may have waiting in one of its outputs.

Invariants: a task starts on new input only while a whole buffer for every target is free, so it is
never stuck in the middle of an ordinary one and hears of barriers while it waits; what needs more
than that (a large window, a flat map) goes on with overdraft buffers and waits only when they are
used up too (FLINK-26762).
"""

import asyncio
from collections.abc import Callable


class BufferPool:
    """The buffers of one output: all channels to the subtasks of one consumer."""

    __slots__ = ("_hard_limit", "_limit", "_listener", "_room", "used")

    def __init__(self, targets: int, size: int, overdraft: int) -> None:
        self.used = 0
        """Buffers that wait for room at their consumer."""
        self._limit = max(0, size - targets)
        self._hard_limit = size + overdraft
        self._listener: Callable[[], None] = _nobody
        self._room = asyncio.Event()

    @property
    def available(self) -> bool:
        """A buffer for every target is free."""
        return self.used <= self._limit

    @property
    def exhausted(self) -> bool:
        """Even the overdraft is used up."""
        return self.used >= self._hard_limit

    def notify(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever the pool becomes available."""
        self._listener = listener

    def take(self) -> None:
        """One more buffer waits."""
        self.used += 1

    def give_back(self) -> None:
        """A buffer moved on to its consumer."""
        self.used -= 1
        if self.used == self._limit:
            self._listener()
        self._room.set()

    async def room(self) -> None:
        """Wait until the pool is not exhausted."""
        while self.exhausted:
            self._room.clear()
            await self._room.wait()


def _nobody() -> None:
    """The listener of a pool before a task uses it."""
