"""Splits of one subtask are read in turn, whatever each of them has, and keep in step."""

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import VirtualClock, in_virtual_time
from tests.support.pipelines import completed, config, run, running
from tests.unit.runtime.event_time.test_idleness import Quiet
from tidelog import (
    CheckpointConfig,
    Emitter,
    ForeachSink,
    IterableSource,
    Job,
    JobRunner,
    PushSource,
    RateSource,
    Source,
    SplitReader,
    TextFileSource,
)
from tidelog.effects import Effects
from tidelog.storage.memory import MemoryStore


class Enough(Exception):
    """The test has seen what it wants."""


class Chatty(PushSource):
    """Splits that push for ever, as fast as they may."""

    def discover(self) -> list[str]:
        return ["a", "b", "c"]

    async def push(self, split: str, position: Any, emitter: Emitter) -> None:
        for number in itertools.count(position or 0):
            await emitter.emit([split], number + 1)


def letters(split: str) -> Callable[[], Iterator[str]]:
    return lambda: itertools.repeat(split)


def followed(directory: Path) -> Source:
    for split in "abc":
        (directory / split).write_text(f"{split}\n" * 50_000)
    return TextFileSource(directory, follow=True, chunk_bytes=100)


ENDLESS: dict[str, Callable[[Path], Source]] = {
    "push": lambda _: Chatty(),
    "rate": lambda _: RateSource(None, splits=3, make=lambda n: "abc"[n % 3]),
    "replayable": lambda _: IterableSource({split: letters(split) for split in "abc"}),
    "blocking": lambda _: IterableSource({s: letters(s) for s in "abc"}, blocking=True),
    "followed": followed,
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_every_endless_split_of_a_subtask_is_read(kind: str, tmp_path: Path) -> None:
    seen: set[str] = set()

    def see(record: str) -> None:
        seen.add(record)
        if seen == set("abc"):
            raise Enough

    job = Job("endless")
    job.source(ENDLESS[kind](tmp_path)).sink(ForeachSink(see))
    with pytest.raises(Exception, match="Enough"):
        run(job, MemoryStore(), config(parallelism=1))


class Silent(Source):
    """Splits without records, each asked again at a time of its own."""

    def __init__(self, splits: int, reads: int) -> None:
        self.splits = splits
        self.reads = reads

    def discover(self) -> list[str]:
        return list(map(str, range(self.splits)))

    def open(self, split: str, position: Any) -> "SilentReader":
        return SilentReader(self, int(split) / self.splits)


class SilentReader(SplitReader):
    position = 0

    def __init__(self, source: Silent, phase: float) -> None:
        self.left = source.reads
        self.delay_s = 0.5 + phase

    def read(self) -> list[Any] | None:
        self.left -= 1
        return [] if self.left else None


def test_many_quiet_splits_are_looked_at_together() -> None:
    """Each look asks all of them whether they are due: one for each read would be quadratic."""
    looks = 0

    class Counting(VirtualClock):
        async def sleep(self, seconds: float) -> None:
            nonlocal looks
            looks += seconds > 0
            await super().sleep(seconds)

    source, job = Silent(600, reads=4), Job("quiet")
    job.source(source).sink(ForeachSink(lambda _: None))
    world = in_virtual_time(1, Counting())
    asyncio.run(JobRunner(job, MemoryStore(), config(parallelism=1), world).run())
    assert looks < source.splits * source.reads / 4


def test_what_a_blocking_iterator_has_and_barriers_pass_while_it_waits() -> None:
    """A record, then nothing until the test is over: the record arrives, checkpoints complete."""
    never = threading.Event()
    arrived: list[str] = []

    def slow() -> Iterator[str]:
        yield "early"
        never.wait()

    def chatty() -> Iterator[str]:
        yield from ("x", "y")
        never.wait()

    async def steps() -> None:
        some = asyncio.Event()
        loop = asyncio.get_running_loop()

        def see(record: str) -> None:
            arrived.append(record)
            if len(arrived) == 11:
                loop.call_soon(some.set)

        # More splits that wait than the pool has threads: they take none of it.
        waiting = {f"s{n}": slow for n in range(9)}
        job = Job("waiting")
        job.source(IterableSource({**waiting, "chatty": chatty}, blocking=True)).sink(
            ForeachSink(see)
        )
        runner = JobRunner(
            job,
            MemoryStore(),
            config(parallelism=1, checkpoint=CheckpointConfig(interval=0.05)),
            Effects(),
        )
        async with running(runner):
            await some.wait()
            before = completed(runner)
            while completed(runner) < before + 2:
                await asyncio.sleep(0.01)

    try:
        asyncio.run(asyncio.wait_for(steps(), 120))
    finally:
        never.set()
    assert sorted(arrived) == ["early"] * 9 + ["x", "y"]


def test_a_split_far_ahead_waits_for_one_behind_that_has_records() -> None:
    """One split has a record a minute, the other one a second: in step, 61 to 1, not 1 to 1."""
    order: list[int] = []
    job = Job("in-step")
    sparse = [("sparse", 60_000 * n) for n in range(1_500)]
    dense = [("dense", 1000 * n) for n in range(90_000)]
    source = IterableSource({"sparse": sparse, "dense": dense})
    timed = job.source(source).event_time(lambda r: r[1], max_ahead_ms=0)
    timed.sink(ForeachSink(lambda r: order.append(r[1])))
    run(job, MemoryStore(), config(parallelism=1))
    assert len(order) == 91_500
    # A read gives 1,024 records: that is how far the sparse split may be ahead, and no further.
    reach = 0
    for time in order:
        reach = max(reach, time)
        assert reach - time <= 60_000 * 1024


def test_nobody_waits_for_a_split_that_has_nothing() -> None:
    """The quiet split is far behind, for ever: the other one is read to its end."""
    seen: list[int] = []

    def see(record: int) -> None:
        seen.append(record)
        if record == 9_900:
            raise Enough

    job = Job("quiet")
    job.source(Quiet()).event_time(lambda n: n * 36_000).sink(ForeachSink(see))
    with pytest.raises(Exception, match="Enough"):
        run(job, MemoryStore(), config(parallelism=1))
    assert len(seen) == 101


def test_a_directory_of_more_files_than_may_be_open_is_read_in_turn(tmp_path: Path) -> None:
    for number in range(150):
        (tmp_path / f"{number:03}").write_text(f"{number} first\n{number} second\n")
    order: list[str] = []
    job = Job("files")
    job.source(TextFileSource(tmp_path, chunk_bytes=12)).sink(ForeachSink(order.append))
    run(job, MemoryStore(), config(parallelism=1))
    assert sorted(order) == sorted(f"{n} {w}" for n in range(150) for w in ("first", "second"))
    assert all(line.endswith("first") for line in order[:150])
