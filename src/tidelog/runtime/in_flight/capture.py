"""Collects the messages in a task's channels that belong to one unaligned checkpoint.

Invariant: complete means that every channel that was expected has answered, and none can any more.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec

from tidelog.ids import CheckpointId
from tidelog.runtime.channels.channel import InFlightData, Recorded


class ChannelId(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One end of a channel by what the channel connects; `input` numbers the consumer's inputs."""

    consumer: str
    input: int
    producer_subtask: int
    consumer_subtask: int
    at_producer: bool
    """The producer's end; its messages follow those at the consumer's end."""


class InputChannel(msgspec.Struct, frozen=True):
    id: ChannelId
    stays_aligned: bool
    """Barriers never overtake on it."""
    carries: bool
    """Its records may lead to output at once."""
    announces: bool
    """Its producer says which splits it reads."""


class ChannelData(msgspec.Struct, frozen=True):
    """The in-flight data of one end of a channel, in order."""

    channel: ChannelId
    data: Sequence[InFlightData]


class InFlight:
    """Collects the in-flight data of one task for one checkpoint."""

    def __init__(self, checkpoint: CheckpointId) -> None:
        self.checkpoint = checkpoint
        self.collected: list[ChannelData] = []
        self._expected: set[ChannelId] = set()
        self._complete = asyncio.Event()
        self._sealed = False
        self._switching: asyncio.Task[None] | None = None
        """Lets barriers that wait in outputs overtake at their deadline."""

    @property
    def is_complete(self) -> bool:
        return self._complete.is_set()

    def switch_by(self, switching: Coroutine[Any, Any, None]) -> None:
        """Let barriers that wait in outputs overtake by `switching`, unless `stop` comes first."""
        self._switching = asyncio.ensure_future(switching)

    def stop(self) -> None:
        """The checkpoint was given up or has all its data: waiting barriers keep their places."""
        if self._switching is not None:
            self._switching.cancel()

    def expect(self, channel: ChannelId) -> None:
        """The data is complete only when this channel has answered as well."""
        self._expected.add(channel)

    def expects(self, channel: ChannelId) -> bool:
        return channel in self._expected

    def record(self, channel: ChannelId, data: Sequence[InFlightData]) -> None:
        """A channel answers with its data of the checkpoint, in order."""
        self._expected.discard(channel)
        if data:
            self.collected.append(ChannelData(channel, data))
        self._look()

    def recorder(self, channel: ChannelId) -> Recorded:
        """Expect a channel; the callback that is returned answers for it."""
        self.expect(channel)
        return lambda data: self.record(channel, data)

    def seal(self) -> None:
        """No further channel will be expected."""
        self._sealed = True
        self._look()

    async def complete(self) -> Sequence[ChannelData]:
        """Wait for all channels; their data in a fixed order."""
        await self._complete.wait()
        return sorted(self.collected, key=lambda part: part.channel)

    def _look(self) -> None:
        if self._sealed and not self._expected:
            self._complete.set()
