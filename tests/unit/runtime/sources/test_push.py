"""A source that pushes is held back by room, and pushes again what no checkpoint has."""

import asyncio
from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tests.support.pipelines import Outside, config, run
from tests.support.pressure import (
    checkpoints,
    copy_of,
    outside_as_of,
    overtaken,
    pressed,
    run_pressed,
    slowly,
)
from tidelog.errors import UserFunctionError
from tidelog.runtime.graph import Job
from tidelog.runtime.sources.push import Emitter, PushSource
from tidelog.storage.memory import MemoryStore


class Numbers(PushSource):
    """Pushes 0..limit of each split, one after the other, as fast as it may."""

    def __init__(self, splits: int, limit: int, fails_at: int | None = None) -> None:
        self._splits = splits
        self._limit = limit
        self._fails_at = fails_at

    def discover(self) -> list[str]:
        return [str(split) for split in range(self._splits)]

    async def push(self, split: str, position: Any, emitter: Emitter) -> None:
        for number in range(position or 0, self._limit):
            if number == self._fails_at:
                raise OSError("the client lost its server")
            await emitter.emit([(split, number)], number + 1)


def pushed(source: Numbers, sink: Outside, clock: VirtualClock) -> Job:
    job = Job("pushed")
    slowly(job.source(source, parallelism=3).rebalance(), clock, 0.2).sink(sink)
    return job


EXPECTED = sorted((str(split), number) for split in range(3) for number in range(40))


def test_every_checkpoint_of_a_pushed_stream_resumes_with_each_record_once() -> None:
    source, sink, objects = Numbers(3, 40), Outside(), MemoryStore("memory://pushed")
    clock = VirtualClock()
    run_pressed(pushed(source, sink, clock), objects, pressed(), clock)
    assert sorted(sink.records) == EXPECTED
    taken = checkpoints(objects)
    assert any(map(overtaken, taken)), "it pushed until there was no room"
    for checkpoint in taken[:-1]:
        again, clock = outside_as_of(sink, checkpoint), VirtualClock()
        job = pushed(Numbers(3, 40), again, clock)
        run_pressed(job, copy_of(objects), pressed(), clock, restore_slot=checkpoint.slot)
        assert sorted(again.records) == EXPECTED


def test_an_error_while_pushing_stops_the_job_and_the_next_start_goes_on() -> None:
    sink, objects = Outside(), MemoryStore("memory://pushed")
    job = Job("pushed")
    job.source(Numbers(2, 40, fails_at=30), name="numbers").sink(sink)
    with pytest.raises(UserFunctionError, match="numbers"):
        run(job, objects, config())
    job = Job("pushed")
    job.source(Numbers(2, 40), name="numbers").sink(sink)
    run(job, objects, config(), seed=2)
    assert sorted(sink.records) == sorted((str(s), n) for s in range(2) for n in range(40))


def test_emit_returns_only_when_the_records_were_taken_over() -> None:
    async def steps() -> None:
        emitter, heard = Emitter(), []
        emitter.notify(lambda: heard.append(True))
        emitting = asyncio.ensure_future(emitter.emit(iter([1, 2]), "here"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert heard == [True] and not emitting.done()
        assert emitter.take() == ([1, 2], "here")
        await emitting
        assert emitter.take() is None

    asyncio.run(steps())
