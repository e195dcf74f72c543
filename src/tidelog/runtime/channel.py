"""Channels: bounded queues of buffers between subtasks.

Invariants: a channel is first-in first-out; a sender waits while its channel is full, so
back-pressure reaches the sources; a blocked channel delivers nothing until unblocked. Pokes
jump the queues: they carry no data and have no place in the order of records.
"""

import asyncio
from collections import deque

from tidelog.runtime.messages import Message


class Gate:
    """All input channels of one subtask."""

    def __init__(self, channels: int, capacity: int) -> None:
        self._queues: list[deque[Message]] = [deque() for _ in range(channels)]
        self._capacity = capacity
        self._blocked: set[int] = set()
        self._ready = asyncio.Event()
        self._room = [asyncio.Event() for _ in range(channels)]
        self._turn = 0
        self._poked = False

    @property
    def channels(self) -> int:
        """Number of channels."""
        return len(self._queues)

    @property
    def queued(self) -> int:
        """Messages waiting in all channels."""
        return sum(map(len, self._queues))

    def full(self, channel: int) -> bool:
        """A sender would have to wait now."""
        return len(self._queues[channel]) >= self._capacity

    async def put(self, channel: int, message: Message) -> None:
        """Append a message; waits while the channel is full."""
        while self.full(channel):
            self._room[channel].clear()
            await self._room[channel].wait()
        self._queues[channel].append(message)
        self._ready.set()

    def poke(self) -> None:
        """Make `get` answer None once, soon: time passed."""
        self._poked = True
        self._ready.set()

    async def get(self) -> tuple[int, Message] | None:
        """The next message of any channel that is not blocked, channels taking turns."""
        while True:
            if self._poked:
                self._poked = False
                return None
            channel = self._next_ready()
            if channel is not None:
                message = self._queues[channel].popleft()
                self._room[channel].set()
                return channel, message
            self._ready.clear()
            await self._ready.wait()

    def block(self, channel: int) -> None:
        """Deliver nothing from this channel for now."""
        self._blocked.add(channel)

    def unblock(self) -> None:
        """Deliver from all channels again."""
        self._blocked.clear()
        self._ready.set()

    def _next_ready(self) -> int | None:
        count = len(self._queues)
        for step in range(count):
            channel = (self._turn + step) % count
            if self._queues[channel] and channel not in self._blocked:
                self._turn = (channel + 1) % count
                return channel
        return None
