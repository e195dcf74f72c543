"""A source that pushes is held back by room, and its splits take turns."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tests.support.pipelines import Outside
from tests.support.pressure import pressed, run_pressed, slowly
from tests.unit.runtime.ending.jobs import run_for
from tidelog import Emitter, ForeachSink, Job, JobConfig, JobRunner, PushSource, UnalignedConfig
from tidelog.effects import Effects
from tidelog.storage.memory import MemoryStore


class Numbers(PushSource):
    """Pushes 0..limit of each split, one after the other, as fast as it may."""

    def __init__(self, splits: int, limit: int) -> None:
        self._splits = splits
        self._limit = limit
        self.taken: list[str] = []
        """The split of each record that was taken over, in this order."""

    def discover(self) -> list[str]:
        return [str(split) for split in range(self._splits)]

    async def push(self, split: str, position: Any, emitter: Emitter) -> None:
        for number in range(position or 0, self._limit):
            await emitter.emit([(split, number)], number + 1)
            self.taken.append(split)


@pytest.mark.parametrize("overdraft", [0, 5])
def test_no_split_of_a_task_pushes_without_a_free_buffer_and_all_take_turns(overdraft: int) -> None:
    source, sink, clock = Numbers(4, 30), Outside(), VirtualClock()
    unhandled: list[int] = []
    shares: list[Counter[str]] = []

    def seen(record: Any) -> Any:
        unhandled.append(len(source.taken) - len(unhandled))
        shares.append(Counter(source.taken))
        return record

    lending = UnalignedConfig("always", overdraft=overdraft)
    settings = pressed(parallelism=1, channel_buffers=2, unaligned=lending)
    job = Job("several")  # one task reads all splits, and the next one takes its time
    slowly(job.source(source, parallelism=1).rebalance(), clock, 0.2).map(seen).sink(sink)
    run_pressed(job, MemoryStore("memory://pushed"), settings, clock)
    assert sorted(sink.records) == sorted((str(s), n) for s in range(4) for n in range(30))
    # One at either end of the channel, also where there are buffers to lend.
    assert max(unhandled) == 2
    assert all(max(s.values()) - min(s[str(n)] for n in range(4)) <= 1 for s in shares)


class Offsets(PushSource):
    """A source whose position is one dict of offsets; `push` changes it before the next `emit`."""

    def discover(self) -> list[str]:
        return ["all"]

    async def push(self, split: str, position: Any, emitter: Emitter) -> None:
        offsets = position or {"all": 1}
        for _ in range(2):
            number = offsets["all"]
            offsets["all"] += 1
            await emitter.emit([number], offsets)
        offsets["all"] += 1
        await asyncio.Event().wait()


def test_a_position_that_is_changed_in_place_is_stored_as_it_was_with_its_records() -> None:
    objects, sink, job = MemoryStore("memory://offsets"), Outside(), Job("offsets")
    job.source(Offsets()).sink(sink)
    for _ in range(3):
        run_for(job, objects, 2.5)
    assert sorted(sink.records) == [1, 2, 3, 4, 5, 6]


async def test_what_was_waited_for_too_long_is_not_taken_later() -> None:
    emitter = Emitter()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await emitter.emit(["in vain"], 1)
    again = asyncio.ensure_future(emitter.emit(["again"], 2))
    await asyncio.sleep(0)
    assert emitter.take() == (["again"], 2)
    await again
    assert emitter.take() is None


class FromThread(PushSource):
    """A client library whose thread hands records over, and does not hear that the job stops."""

    def discover(self) -> list[str]:
        return ["all"]

    async def push(self, split: str, position: Any, emitter: Emitter) -> None:
        loop = asyncio.get_running_loop()
        self.thread = asyncio.ensure_future(asyncio.to_thread(self._emit, emitter, loop))
        await asyncio.shield(self.thread)

    def _emit(self, emitter: Emitter, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            asyncio.run_coroutine_threadsafe(emitter.emit(["record"], None), loop).result()


def test_a_thread_that_emits_does_not_wait_for_a_job_that_has_stopped() -> None:
    source, job, world = FromThread(), Job("stopped"), Effects()
    taken: list[Any] = []
    job.source(source).sink(ForeachSink(taken.append))
    runner = JobRunner(job, MemoryStore(), JobConfig(parallelism=1), world)

    async def stop_and_go_on() -> None:
        running = asyncio.ensure_future(runner.run())
        while not taken:
            await asyncio.sleep(0)
        await runner.stop("halt")
        await running
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(source.thread, 20)

    asyncio.run(stop_and_go_on())
    world.offload.close()
