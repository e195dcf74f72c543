"""Gates: all input channels of one subtask.

Invariants: channels take turns and each stays in order; a blocked channel delivers nothing until
unblocked; nothing but barriers is delivered while the task could not put its output anywhere;
restored in-flight data comes before anything new, of any channel. Announcements and pokes jump the
queues: they carry no data and have no place in the order of records.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain
from operator import attrgetter

from tidelog.runtime.channels.channel import Channel
from tidelog.runtime.channels.messages import (
    Barrier,
    Batch,
    EndOfChannel,
    EndOfData,
    EndOfInput,
    KeyedBatch,
    Message,
)
from tidelog.runtime.operators.progress import Standstills


class Gate:
    """Delivers to one task from so many channels; `make_channel` gets the gate and a number."""

    def __init__(self, channels: int, make_channel: "Callable[[Gate, int], Channel]") -> None:
        self.channels = [make_channel(self, number) for number in range(channels)]
        self._blocked: set[int] = set()
        self._ready = asyncio.Event()
        self._announced: deque[Barrier] = deque()
        """Barriers that are in a channel and may overtake, or that none will bring."""
        self._turn = 0
        self._poked = False
        self._recovering = False
        self._output_available: Callable[[], bool] = lambda: True
        self._standstills = Standstills(float)

    @property
    def waiting(self) -> list[int]:
        return list(chain.from_iterable(map(attrgetter("waiting"), self.channels)))

    def waiting_batches(self) -> list[KeyedBatch]:
        """The buffers of keyed records that wait in all channels."""
        return list(chain.from_iterable(map(attrgetter("keyed_batches"), self.channels)))

    def widen(self, buffers: int) -> None:
        """From now on there is room for so many more buffers in each channel, or fewer."""
        for channel in self.channels:
            channel.widen(buffers)

    def deliver_while(self, output_available: Callable[[], bool]) -> None:
        """Deliver records only while this is true; call `wake` when it became true."""
        self._output_available = output_available

    def watched_by(self, standstills: Standstills) -> None:
        """Say from now on, before the first buffer comes, when one comes."""
        self._standstills = standstills

    def arrived(self, message: Message) -> None:
        if isinstance(message, Batch):
            self._standstills.arrived()
        elif isinstance(message, Barrier) and message.order != "aligned":
            self._announced.append(message)
        self._ready.set()

    def announce(self, barrier: Barrier) -> None:
        """Make `get` return this barrier before any message."""
        self._announced.append(barrier)
        self._ready.set()

    def poke(self) -> None:
        """Make `get` return None once: processing time passed."""
        self._poked = True
        self._ready.set()

    def wake(self) -> None:
        """Make a waiting `get` check again whether it can deliver something."""
        self._ready.set()

    def recovered(self) -> None:
        """Restored data was put into channels: it comes first."""
        self._recovering = True
        self._ready.set()

    async def get(self) -> tuple[int, Message] | Barrier | None:
        """The next message of any channel that may deliver, channels taking turns; without a
        channel, a barrier that was announced.
        """
        while True:
            if self._announced:
                return self._announced.popleft()
            if self._poked:
                self._poked = False
                return None
            channel = self._next_ready(available=self._output_available())
            if channel is not None:
                return self._take(channel)
            self._ready.clear()
            await self._ready.wait()

    @property
    def has_next(self) -> bool:
        """Whether `get` would return at once."""
        if self._announced or self._poked:
            return True
        return self._next_ready(available=self._output_available()) is not None

    async def interruption(self) -> tuple[int, Message] | Barrier | None:
        """In the middle of something long: a barrier, else None as soon as there is room for more
        output.

        The barrier that a job stops with waits: nothing may be emitted after it.
        """
        while True:
            if self._announced and not self._announced[0].stop:
                return self._announced.popleft()
            channel = self._next_ready(available=False)
            head = self.channels[channel].head if channel is not None else None
            if channel is not None and not (isinstance(head, Barrier) and head.stop):
                return self._take(channel)
            if self._output_available():
                return None
            self._ready.clear()
            await self._ready.wait()

    def block(self, channel: int) -> None:
        self._blocked.add(channel)

    def unblock(self) -> None:
        """Deliver from all channels again."""
        self._blocked.clear()
        self._ready.set()

    def _next_ready(self, *, available: bool) -> int | None:
        channels, blocked = self.channels, self._blocked
        count = len(channels)
        recovering = self._recovering = self._recovering and any(c.recovered for c in channels)
        # Restored data in the order of the channels: an earlier rescale put what is older first.
        start = 0 if recovering else self._turn
        for step in range(count):
            number = (start + step) % count
            head = channels[number].head
            if head is None or number in blocked:
                continue
            if recovering and not channels[number].recovered:
                continue
            if available or isinstance(head, Barrier | EndOfChannel):
                return number
        return None

    def _take(self, channel: int) -> tuple[int, Message]:
        self._turn = (channel + 1) % len(self.channels)
        return channel, self.channels[channel].take()


class TableGate(Gate):
    """A gate that delivers no records but those of a table, until the table has come as a whole.

    What waits here was sent after the table's last row was: no barrier that the table's channels
    wait for is behind it.
    """

    def __init__(
        self, channels: int, make_channel: "Callable[[Gate, int], Channel]", table: Iterable[int]
    ) -> None:
        super().__init__(channels, make_channel)
        self._table = set(table)
        """Channels of the table that bring more of it."""

    def _next_ready(self, *, available: bool) -> int | None:
        if not self._table:
            return super()._next_ready(available=available)
        channels = self.channels
        table_recovers = any(channels[number].recovered for number in self._table)
        start = 0 if any(channel.recovered for channel in channels) else self._turn
        for step in range(len(channels)):
            number = (start + step) % len(channels)
            channel = channels[number]
            head = channel.head
            if head is None or number in self._blocked:
                continue
            if number in self._table:
                waits = table_recovers and not channel.recovered
            else:
                # What is restored needs no more than the rows that are restored as well.
                waits = table_recovers if channel.recovered else isinstance(head, Batch)
            if not waits and (available or isinstance(head, Barrier | EndOfChannel)):
                return number
        return None

    def _take(self, channel: int) -> tuple[int, Message]:
        number, message = super()._take(channel)
        if self._table and isinstance(message, EndOfInput | EndOfData | EndOfChannel):
            self._table.discard(number)
        return number, message
