"""What a barrier overtakes is recorded once, where it waits; channels take turns. A task waits
for room, finishes what it began, and lets barriers in meanwhile."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

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
from tidelog import Job, JobConfig, JobRunner, Schedule, Stream, UnalignedConfig
from tidelog.ids import CheckpointId
from tidelog.runtime.channels.channel import BufferPool, Channel, InFlightData
from tidelog.runtime.channels.gate import Gate
from tidelog.runtime.channels.messages import Barrier, Batch, EndOfData, Watermark
from tidelog.runtime.operators.operator import Operator
from tidelog.storage.memory import MemoryStore


def gate_of(pools: Sequence[BufferPool], buffers: int) -> Gate:
    """A gate with a channel for each of the output pools of its producers."""
    return Gate(len(pools), lambda gate, at: Channel(gate, at, buffers, pools[at]))


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
    config = pressed(parallelism=1, channel_buffers=1, checkpoint=Schedule(1.0, 1e6))
    delays: list[int] = []
    runner = JobRunner(job, objects, config, in_virtual_time(1, clock))
    asyncio.run(runner.run())
    for checkpoint in checkpoints(objects):
        delays += [s.barrier.start_delay_ms for _, s in checkpoint.subtasks() if s.barrier]
    assert sorted(sink.records) == sorted(source.records)
    assert max(delays) <= 60_000, "a barrier waits for the buffer in hand, never for those queued"
    assert any(map(overtaken, checkpoints(objects)))
