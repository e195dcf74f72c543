"""Channels: first-in first-out, from one subtask to one of the next operator.

Invariants:
- a channel holds what its consumer may take (the input) and after it what the consumer has no
  room for (the backlog, which counts against the producer's pool); together they keep the order;
- events need no room; only buffers of records do;
- a barrier that overtakes moves to the end of the input: what is before it there is in-flight data
  of the consumer, what it passed in the backlog is in-flight data of the producer;
- in-flight data stays as it was when the barrier passed, whatever the consumer does to its records.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tidelog.errors import UserFunctionError
from tidelog.ids import CheckpointId
from tidelog.runtime.channels.buffers import bytes_of
from tidelog.runtime.channels.copies import copy_of
from tidelog.runtime.channels.messages import (
    Barrier,
    Batch,
    EndOfChannel,
    KeyedBatch,
    Message,
    Watermark,
)


class BufferPool:
    """The buffers of one output: all channels to the subtasks of one consumer."""

    __slots__ = ("_hard_limit", "_limit", "_listener", "_room", "used")

    def __init__(self, targets: int, size: int, overdraft: int) -> None:
        self.used = 0
        """Buffers that wait for room at their consumer."""
        self._limit = max(0, size - targets)
        self._hard_limit = size + overdraft
        self._listener: Callable[[], None] = lambda: None
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
        self.used += 1

    def give_back(self) -> None:
        self.used -= 1
        if self.used == self._limit:
            self._listener()
        self._room.set()

    async def room(self) -> None:
        """Wait until the pool is not exhausted."""
        while self.exhausted:
            self._room.clear()
            await self._room.wait()


InFlightData = Batch | Watermark
"""A message of a channel that an unaligned checkpoint stores."""

Recorded = Callable[[list[InFlightData]], None]
"""A callback that takes the in-flight data of a channel."""


class ChannelAddress(NamedTuple):
    """A channel by its consumer's vertex and subtask, and its number there."""

    vertex: str
    subtask: int
    number: int


class Consumer(Protocol):
    """The port for what takes from a channel: a gate."""

    def arrived(self, message: Message) -> None:
        """A message has arrived in the input of a channel."""


class Channel:
    """One channel; `number` is its place among the consumer's."""

    __slots__ = (
        "_backlog",
        "_consumer",
        "_input",
        "_pool",
        "_recording",
        "_room",
        "_when_moved",
        "number",
        "recovered",
    )

    def __init__(self, consumer: Consumer, number: int, buffers: int, pool: BufferPool) -> None:
        self.number = number
        self.recovered = 0
        """Number of restored messages that the consumer has not taken yet; they come first."""
        self._consumer = consumer
        self._room = buffers
        self._pool = pool
        self._input: deque[Message] = deque()
        self._backlog: deque[Message] = deque()
        self._when_moved: dict[CheckpointId, Callable[[], None]] = {}
        self._recording: _Recording | None = None

    @property
    def keyed_batches(self) -> list[KeyedBatch]:
        """The buffers of keyed records that wait here, in their order."""
        messages = itertools.chain(self._input, self._backlog)
        return [message for message in messages if isinstance(message, KeyedBatch)]

    def __len__(self) -> int:
        return len(self._input) + len(self._backlog)

    @property
    def waiting(self) -> list[int]:
        """Bytes in memory of each buffer of records that waits."""
        messages = itertools.chain(self._input, self._backlog)
        return [message.size_bytes for message in messages if isinstance(message, Batch)]

    @property
    def head(self) -> Message | None:
        """The message that the consumer takes next; None: there is none."""
        return self._input[0] if self._input else None

    # --- the producer's end

    def send(self, message: Message) -> None:
        """Append a message; it waits in the backlog while the consumer has no room."""
        records = isinstance(message, Batch)
        if self._backlog or (records and self._room <= 0):
            self._backlog.append(message)
            if records:
                self._pool.take()
        else:
            self._room -= records
            self._arrive(message)

    def send_first(self, barrier: Barrier) -> list[InFlightData]:
        """Let a barrier overtake the backlog; returns what it overtook."""
        overtaken = _data(self._backlog)
        self._arrive(barrier)
        return overtaken

    def holds(self, checkpoint: CheckpointId, when_moved: Callable[[], None]) -> bool:
        """Whether a barrier waits in the backlog; if so, calls back when it has moved on."""
        waits = any(_is_barrier(message, checkpoint) for message in self._backlog)
        if waits:
            self._when_moved[checkpoint] = when_moved
        return waits

    def forget(self, checkpoint: CheckpointId) -> None:
        """The checkpoint was given up: do not call back when its barrier moves on."""
        self._when_moved.pop(checkpoint, None)

    def move_first(self, checkpoint: CheckpointId, barrier: Barrier) -> list[InFlightData]:
        """Put `barrier` in the place of the one that waits in the backlog, and let it overtake
        what is before it there; returns that.
        """
        self._when_moved.pop(checkpoint, None)
        waiting = iter(list(self._backlog))
        overtaken: list[Message] = []
        for message in waiting:
            if _is_barrier(message, checkpoint):
                break
            overtaken.append(message)
        self._backlog = deque([*overtaken, *waiting])
        self._arrive(barrier)
        # Without the barrier in its way an event may be first.
        self._move()
        return _data(overtaken)

    # --- the consumer's end

    def take(self) -> Message:
        message = self._input.popleft()
        if self.recovered:
            self.recovered -= 1
        if isinstance(message, Batch):
            self._room += 1
            self._move()
            if message.in_flight:
                with suppress(UserFunctionError):  # what has no copy is not stored either
                    return copy_of(message)
        return message

    def widen(self, buffers: int) -> None:
        """From now on there is room for so many more buffers here, or fewer."""
        self._room += buffers
        self._move()

    def recover(self, messages: Iterable[InFlightData]) -> None:
        """Put restored in-flight data into the empty input; it takes what room it needs."""
        for message in messages:
            if isinstance(message, Batch):
                message.size_bytes = bytes_of(message.records)
                self._room -= 1
            self.recovered += 1
            self._arrive(message)

    def record(self, checkpoint: CheckpointId, recorded: Recorded) -> None:
        """Call `recorded` with the data before the barrier of a checkpoint, once that has come.

        The barrier is taken out: it has done its work. Where the channel ends no barrier comes.
        """
        for position, message in enumerate(self._input):
            barrier = _is_barrier(message, checkpoint)
            if barrier or isinstance(message, EndOfChannel):
                overtaken = _data(itertools.islice(self._input, position))
                if barrier:
                    del self._input[position]
                recorded(overtaken)
                return
        self._recording = _Recording(checkpoint, recorded, _data(self._input))

    def stop_recording(self, checkpoint: CheckpointId) -> None:
        """The checkpoint was given up: do not record for it."""
        if self._recording is not None and self._recording.checkpoint == checkpoint:
            self._recording = None

    # --- between them

    def _move(self) -> None:
        """From the backlog to the input, as far as there is room."""
        backlog = self._backlog
        while backlog:
            message = backlog[0]
            if isinstance(message, Batch):
                if self._room <= 0:
                    return
                self._room -= 1
                self._pool.give_back()
            backlog.popleft()
            self._arrive(message)
            if isinstance(message, Barrier) and message.checkpoint in self._when_moved:
                self._when_moved.pop(message.checkpoint)()

    def _arrive(self, message: Message) -> None:
        recording = self._recording
        if recording is not None:
            barrier = _is_barrier(message, recording.checkpoint)
            if barrier or isinstance(message, EndOfChannel):
                self._recording = None
                recording.recorded(recording.data)
            if barrier:
                return
            recording.data.extend(_data([message]))
        self._input.append(message)
        self._consumer.arrived(message)


@dataclass(frozen=True, slots=True)
class _Recording:
    checkpoint: CheckpointId
    recorded: Recorded
    data: list[InFlightData]


def _is_barrier(message: Message, checkpoint: CheckpointId) -> bool:
    return isinstance(message, Barrier) and message.checkpoint == checkpoint


def _data(messages: Iterable[Message]) -> list[InFlightData]:
    """The in-flight data among messages that an unaligned checkpoint is to store."""
    data = [message for message in messages if isinstance(message, InFlightData)]
    for message in data:
        if isinstance(message, Batch):
            message.in_flight = True
    return data
