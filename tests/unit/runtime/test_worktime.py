"""Work is counted as work, and waiting for others as back-pressure."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from tests.support.clock import VirtualClock
from tidelog.effects import InlineOffload, ThreadOffload
from tidelog.ids import CheckpointId
from tidelog.runtime.channels.channel import BufferPool
from tidelog.runtime.channels.gate import Gate
from tidelog.runtime.channels.messages import Batch, Watermark
from tidelog.runtime.channels.output import ChannelOutput, OutputEdge
from tidelog.runtime.channels.partition import Forward
from tidelog.runtime.in_flight.capture import ChannelId
from tidelog.runtime.operators.turn import WorkTime
from tidelog.runtime.sink import SinkWriter
from tidelog.runtime.tasks.sink_output import SinkOutput

Steps = Callable[[VirtualClock, WorkTime], Coroutine[Any, Any, None]]


def times(steps: Steps) -> tuple[float, float]:
    """(busy, back-pressured) seconds after some steps."""

    async def run() -> WorkTime:
        clock = VirtualClock(auto=False)
        work = WorkTime(clock)
        await steps(clock, work)
        return work

    work = asyncio.run(run())
    return work.busy_s, work.backpressured_s


def test_waiting_within_work_is_no_work() -> None:
    async def steps(clock: VirtualClock, work: WorkTime) -> None:
        for _ in range(2):
            with work.working():
                await clock.advance(3)
                with work.waiting():
                    await clock.advance(5)
                await clock.advance(1)
            await clock.advance(100)

    assert times(steps) == (8, 10)


def test_a_failure_ends_both_spans() -> None:
    async def steps(clock: VirtualClock, work: WorkTime) -> None:
        try:
            with work.working():
                await clock.advance(1)
                with work.waiting():
                    await clock.advance(2)
                    raise ValueError
        except ValueError:
            pass

    assert times(steps) == (1, 2)


def test_an_output_counts_the_wait_for_room_in_a_full_channel() -> None:
    async def steps(clock: VirtualClock, work: WorkTime) -> None:
        pool = BufferPool(1, 1, overdraft=0)
        gate = Gate([pool], 1)
        name = ChannelId("consumer", 0, 0, 0, at_producer=True)
        output = ChannelOutput([OutputEdge(Forward(0), tuple(gate.channels), (name,), pool)], work)

        async def send() -> None:
            with work.working():
                await output.emit(Batch([1]))
                await clock.sleep(2)
                await output.emit(Batch([2]))
                await output.emit(Batch([3]))
                await output.announce(Watermark(3))

        sending = asyncio.ensure_future(send())
        await clock.advance(2)
        for _ in range(3):
            await clock.advance(10)
            await gate.get()
        await sending

    assert times(steps) == (2, 20)


class Slow(SinkWriter):
    """Commits when told to."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.written: list[Any] = []

    def write(self, records: Sequence[Any]) -> None:
        self.written += records

    def pre_commit(self, checkpoint: CheckpointId) -> bytes | None:
        return b"token"

    def commit(self, transaction: bytes) -> None:
        assert self.go.wait(60)


def test_a_sink_counts_the_wait_for_a_commit_under_way() -> None:
    async def steps(clock: VirtualClock, work: WorkTime) -> None:
        writer, offload = Slow(), ThreadOffload()
        sink = SinkOutput("sink", writer, offload, work)
        await sink.pre_commit(CheckpointId(1))
        committing = asyncio.ensure_future(sink.commit(CheckpointId(1)))
        await clock.advance(1)

        async def send() -> None:
            with work.working():
                await sink.emit(Batch([1]))

        sending = asyncio.ensure_future(send())
        await clock.advance(7)
        assert writer.written == []
        writer.go.set()
        await asyncio.gather(committing, sending)
        assert writer.written == [1]
        offload.close()

    assert times(steps) == (0, 7)


def test_a_sink_without_a_commit_under_way_waits_for_nothing() -> None:
    async def steps(clock: VirtualClock, work: WorkTime) -> None:
        sink = SinkOutput("sink", Slow(), InlineOffload(), work)
        with work.working():
            await sink.emit(Batch([1]))
            await clock.advance(1)

    assert times(steps) == (1, 0)
