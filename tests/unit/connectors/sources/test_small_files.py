"""Many small splits of one source: threads read several in turn, and none is lost or kept back."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from tests.support.pipelines import effects
from tidelog import Callback, Effects, Job, JobConfig, JobRunner, Source, SplitReader, TextFiles
from tidelog.effects import InlineOffload, ThreadOffload
from tidelog.storage.memory import MemoryStore

P = ParamSpec("P")
T = TypeVar("T")

FILES = 500


class Counting(ThreadOffload):
    """Threads, and how often the event loop waited for one that may take long."""

    waits = 0

    async def wait(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.waits += 1
        return await super().wait(function, *args, **kwargs)


def records_of(source: Source, offload: ThreadOffload) -> list[Any]:
    """What a job makes of the whole source."""
    seen: list[Any] = []
    job = Job("read")
    job.source(source).sink(Callback(seen.append))

    async def run() -> None:
        effects = Effects(offload=offload)
        await JobRunner(job, MemoryStore(), JobConfig(), effects).run()

    asyncio.run(run())
    offload.close()
    return seen


def test_a_thread_reads_many_small_files_in_turn(tmp_path: Path) -> None:
    for number in range(FILES):
        (tmp_path / f"{number:03d}").write_text(f"{number} a\n{number} b\n")
    offload = Counting()
    lines = records_of(TextFiles(tmp_path), offload)
    assert sorted(lines) == sorted(f"{number} {side}" for number in range(FILES) for side in "ab")
    assert offload.waits < FILES / 4


class OneHangs(Source):
    """Splits of one record each; the first is read when all others were."""

    blocking = True
    prompt = True

    def __init__(self, splits: int) -> None:
        self.splits = splits
        self.others = threading.Semaphore(0)
        self.was_kept_back = False

    def discover(self) -> list[str]:
        return [f"{number:03d}" for number in range(self.splits)]

    def open(self, split: str, position: Any) -> SplitReader:
        return _OneRecord(self, split, position or 0)


class _OneRecord(SplitReader):
    def __init__(self, source: OneHangs, split: str, position: int) -> None:
        self._source = source
        self._split = split
        self.position = position

    def read(self) -> list[Any] | None:
        if self.position:
            return None
        if self._split == "000":
            for _ in range(self._source.splits - 1):
                self._source.was_kept_back |= not self._source.others.acquire(timeout=60)
        else:
            self._source.others.release()
        self.position = 1
        return [self._split]


def test_splits_behind_one_whose_storage_does_not_answer_are_read() -> None:
    source = OneHangs(FILES)
    assert sorted(records_of(source, ThreadOffload())) == source.discover()
    assert not source.was_kept_back


class ALittleLater(InlineOffload):
    """What may take long ends in a later round of the event loop, as with threads."""

    async def wait(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        await asyncio.sleep(0)
        return function(*args, **kwargs)


class Quiet(Source):
    """Two splits in which nothing happens; a look at one of them does not wait."""

    blocking = True
    reads = 0

    def discover(self) -> list[str]:
        return ["a", "b"]

    def open(self, split: str, position: Any) -> SplitReader:
        return _Nothing(self)


class _Nothing(SplitReader):
    position = None

    def __init__(self, source: Quiet) -> None:
        self._source = source

    def read(self) -> list[Any] | None:
        self._source.reads += 1
        return []


async def test_quiet_splits_are_looked_at_now_and_then_and_do_not_wake_each_other() -> None:
    source, virtual = Quiet(), replace(effects(), offload=ALittleLater())
    job = Job("quiet")
    job.source(source).sink(Callback(lambda _: None))
    running = asyncio.ensure_future(JobRunner(job, MemoryStore(), JobConfig(), virtual).run())
    for _ in range(50):
        await virtual.clock.sleep(0.1)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert 50 <= source.reads <= 2 * 55


class SaysItsBytes(Source):
    """Splits of one short record each, which stand for so many bytes of what was read."""

    blocking = True
    prompt = True

    def __init__(self, read_bytes: int) -> None:
        self.read_bytes = read_bytes

    def discover(self) -> list[str]:
        return [f"{number:03d}" for number in range(32)]

    def open(self, split: str, position: Any) -> SplitReader:
        return _Heavy(split, position or 0, self.read_bytes)


class _Heavy(SplitReader):
    def __init__(self, split: str, position: int, read_bytes: int) -> None:
        self._split = split
        self.position = position
        self.read_bytes = read_bytes

    def read(self) -> list[Any] | None:
        if self.position:
            return None
        self.position = 1
        return [self._split]


def test_a_thread_ends_when_it_has_read_a_batch_by_the_bytes_of_its_readers() -> None:
    waits = []
    for read_bytes in (1, 1 << 20):
        source, offload = SaysItsBytes(read_bytes), Counting()
        assert sorted(records_of(source, offload)) == source.discover()
        waits.append(offload.waits)
    light, heavy = waits
    assert heavy >= 32 > light
