"""Channels take turns. A task waits for room, finishes what it began, and lets barriers in
meanwhile."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import cast

import pytest

from tests.support.clock import VirtualClock, in_virtual_time
from tests.support.pipelines import Outside
from tests.support.pressure import (
    Eager,
    checkpoints,
    numbered,
    overtaken,
    pressed,
    run_pressed,
    slowly,
)
from tidelog import CheckpointConfig, Job, JobConfig, JobRunner, Stream, UnalignedConfig
from tidelog.runtime.channels.channel import BufferPool, Channel, ChannelAddress
from tidelog.runtime.channels.gate import Gate
from tidelog.runtime.channels.messages import Batch, Message
from tidelog.runtime.operators.operator import Operator
from tidelog.runtime.workers.link import Link, ReceivingChannel, SendingChannel
from tidelog.storage.memory import MemoryStore


async def test_channels_take_turns_and_each_stays_in_order() -> None:
    gate = Gate(2, lambda gate, at: Channel(gate, at, 10, BufferPool(1, 100, 0)))
    for channel, numbers in zip(gate.channels, ([1, 2, 3], [7]), strict=True):
        for number in numbers:
            channel.send(Batch([number]))
    received = [await gate.get() for _ in range(4)]
    assert received == [(0, Batch([1])), (1, Batch([7])), (0, Batch([2])), (0, Batch([3]))]


def room_of(producer: Channel, pool: BufferPool) -> int:
    """How many more buffers the consumer of a channel has room for."""
    sent = 0
    while pool.used == 0:
        producer.send(Batch([sent]))
        sent += 1
    return sent - 1


async def drained(gate: Gate) -> list[object]:
    """The records of all buffers that wait, in their order."""
    return [(await gate.get())[1].records[0] for _ in iter(lambda: gate.has_next, False)]


async def test_a_channel_has_room_for_more_buffers_for_a_while() -> None:
    pool = BufferPool(1, 100, 0)
    gate = Gate(1, lambda gate, at: Channel(gate, at, 1, pool))
    gate.widen(3)
    assert room_of(gate.channels[0], pool) == 4
    assert await drained(gate) == [0, 1, 2, 3, 4]
    gate.widen(-3)
    assert room_of(gate.channels[0], pool) == 1


class Sent:
    """A link to another worker whose messages arrive at once."""

    def __init__(self) -> None:
        self.receive: Callable[[Message | None], None] = lambda _: None

    def send(self, message: tuple[ChannelAddress, Message | None]) -> None:
        self.receive(message[1])


async def test_a_channel_from_another_worker_has_room_for_more_buffers_for_a_while() -> None:
    address, pool = ChannelAddress("counts", 0, 0), BufferPool(1, 100, 0)
    there, back = Sent(), Sent()
    producer = SendingChannel(address, 1, pool, cast(Link, there))
    gate = Gate(1, lambda gate, at: ReceivingChannel(gate, address, cast(Link, back)))
    consumer = cast(ReceivingChannel, gate.channels[0])
    there.receive = lambda message: consumer.receive(cast(Message, message))
    back.receive = lambda _: producer.give_room()
    gate.widen(3)
    assert room_of(producer, pool) == 4
    gate.widen(-3)
    assert await drained(gate) == [0, 1, 2, 3, 4]
    assert room_of(producer, pool) == 1


class Burst(Operator):
    """Makes many buffers of one."""

    def process(self, batch: Batch) -> Iterable[Batch]:
        for record in batch.records:
            for copy in range(4):
                yield Batch([(*record, copy)])


def test_a_record_that_makes_more_than_there_is_room_for_passes_with_any_overdraft() -> None:
    for overdraft in (0, 1, 5):
        source, sink, objects, clock = numbered(length=12), Outside(), MemoryStore(), VirtualClock()
        job = Job("bursts")
        bursts: Stream = job.source(source, parallelism=4)._then("burst", Burst)
        slowly(bursts.rebalance(), clock, 0.2).sink(sink)
        settings = pressed(channel_buffers=1)
        settings = replace(settings, unaligned=replace(settings.unaligned, overdraft=overdraft))
        run_pressed(job, objects, settings, clock)
        expected = [(*record, copy) for record in source.records for copy in range(4)]
        assert sorted(sink.records) == sorted(expected)


def furthest_ahead(subtasks: int, unaligned: UnalignedConfig) -> int:
    """How many buffers of a large record's output wait, at most, for those that handle them."""
    clock, sink = VirtualClock(), Outside()
    made = handled = ahead = 0

    def burst(record: int) -> Iterator[tuple[int, int]]:
        nonlocal made
        for number in range(200):
            clock.spend(0.1)  # longer than a turn: every record is a buffer
            made += 1
            yield record, number

    def handle(record: tuple[int, int]) -> tuple[int, int]:
        nonlocal ahead, handled
        if record[1] > 50:  # by then a task draws one at a time
            ahead = max(ahead, made - handled)
        handled += 1
        return record

    job = Job("bursts")
    bursts = job.source(Eager({"only": [1]}), parallelism=1).flat_map(burst)
    bursts.rebalance().map(handle).sink(sink)
    config = pressed(parallelism=subtasks, channel_buffers=1, unaligned=unaligned)
    run_pressed(job, MemoryStore(), config, clock)
    assert sorted(sink.records) == [(1, number) for number in range(200)]
    return ahead


@pytest.mark.parametrize("subtasks", [1, 2, 3])
def test_an_output_lends_five_buffers_however_many_channels_it_has(subtasks: int) -> None:
    lent = [furthest_ahead(subtasks, UnalignedConfig(overdraft=n)) for n in (0, 1, 5, 6)]
    assert [more - lent[0] for more in lent] == [0, 1, 5, 6]
    assert furthest_ahead(subtasks, UnalignedConfig()) == lent[2]
    assert furthest_ahead(subtasks, JobConfig().unaligned) == lent[2]


def test_a_source_without_room_hears_of_barriers() -> None:
    """The sink's operator takes a minute per buffer; barriers pass all the same."""
    source, sink, objects, clock = numbered(1, 8), Outside(), MemoryStore(), VirtualClock()
    job = Job("stuck")
    slowly(job.source(source, parallelism=1).rebalance(), clock, 60.0).sink(sink)
    config = pressed(parallelism=1, channel_buffers=1, checkpoint=CheckpointConfig(1.0, 1e6))
    delays: list[int] = []
    runner = JobRunner(job, objects, config, in_virtual_time(1, clock))
    asyncio.run(runner.run())
    for checkpoint in checkpoints(objects):
        delays += [s.barrier.start_delay_ms for _, s in checkpoint.subtasks() if s.barrier]
    assert sorted(sink.records) == sorted(source.records)
    assert max(delays) <= 60_000, "a barrier waits for the buffer in hand, never for those queued"
    assert any(map(overtaken, checkpoints(objects)))
