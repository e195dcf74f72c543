"""What a barrier overtakes is recorded once, where it waits; channels take turns."""

from typing import Any

from tests.support.gates import gate_of
from tidelog.ids import CheckpointId
from tidelog.runtime.channels.channel import BufferPool, Channel, InFlightData
from tidelog.runtime.channels.messages import Barrier, Batch, EndOfData, Watermark

ONE = CheckpointId(1)
MAY = Barrier(ONE, 0.0, order="may-switch")
NOW = Barrier(ONE, 0.0, order="unaligned")


def a_channel(buffers: int = 2) -> Channel:
    return gate_of([BufferPool(1, 100, 0)], buffers).channels[0]


def buffers(channel: Channel, *numbers: int) -> None:
    for number in numbers:
        channel.send(Batch([number]))


def drained(channel: Channel) -> list[Any]:
    taken = []
    while channel.head is not None:
        message = channel.take()
        taken.append(message.records[0] if isinstance(message, Batch) else message)
    return taken


def numbers(data: list[InFlightData]) -> list[Any]:
    return [m.records[0] if isinstance(m, Batch) else m for m in data]


class Recorder:
    """Takes what a channel recorded, once."""

    def __init__(self) -> None:
        self.data: list[Any] | None = None

    def __call__(self, data: list[InFlightData]) -> None:
        assert self.data is None
        self.data = numbers(data)


def test_sent_first_it_leaves_the_backlog_to_the_producer_and_the_input_to_the_consumer() -> None:
    channel, recorded = a_channel(2), Recorder()
    buffers(channel, 1, 2, 3)
    channel.send(Watermark(7))
    buffers(channel, 4)
    assert numbers(channel.send_first(NOW)) == [3, Watermark(7), 4]
    channel.record(ONE, recorded)
    assert recorded.data == [1, 2]
    assert drained(channel) == [1, 2, 3, Watermark(7), 4], "all of it is still delivered"


def test_a_barrier_that_waits_in_the_backlog_moves_to_the_front_of_it() -> None:
    channel, recorded, moved = a_channel(1), Recorder(), []
    buffers(channel, 1, 2)
    channel.send(MAY)
    buffers(channel, 3)
    assert channel.holds(ONE, lambda: moved.append(True))
    assert numbers(channel.move_first(ONE, NOW)) == [2], "what came behind it is not in flight"
    channel.record(ONE, recorded)
    assert recorded.data == [1]
    assert drained(channel) == [1, 2, 3]
    assert moved == []


def test_what_comes_before_a_late_barrier_is_recorded_and_what_is_behind_is_not() -> None:
    channel, recorded = a_channel(2), Recorder()
    buffers(channel, 1)
    channel.record(ONE, recorded)
    assert drained(channel) == [1], "the task goes on meanwhile"
    buffers(channel, 2)
    channel.send(EndOfData())
    assert recorded.data is None
    channel.send(NOW)
    buffers(channel, 3)
    assert recorded.data == [1, 2]
    assert drained(channel) == [2, EndOfData(), 3]


async def test_channels_take_turns_and_each_stays_in_order() -> None:
    gate = gate_of([BufferPool(1, 100, 0), BufferPool(1, 100, 0)], 10)
    first, second = gate.channels
    buffers(first, 1, 2, 3)
    buffers(second, 7)
    received = [await gate.get() for _ in range(4)]
    assert received == [(0, Batch([1])), (1, Batch([7])), (0, Batch([2])), (0, Batch([3]))]
