"""Whatever was opened is closed once, however a job ends: sources, operators, processors, sinks."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import VirtualClock, in_virtual_time
from tests.support.faults import SteerableStore
from tests.support.pipelines import Outside, Portions, config, effects, running, word_count
from tidelog import (
    CheckpointConfig,
    Job,
    JobConfig,
    JobRunner,
    StatefulProcessor,
    StatefulProcessorHandle,
    UploadConfig,
)
from tidelog.errors import FencedError, UserFunctionError
from tidelog.ids import CheckpointId
from tidelog.runtime.sink import Sink, SinkContext, SinkWriter
from tidelog.runtime.source import Source, SplitReader
from tidelog.storage.memory import MemoryStore


class Ledger:
    """What was opened and closed; `fails` are calls that raise."""

    def __init__(self, *fails: str) -> None:
        self.opened: list[object] = []
        self.closed: list[object] = []
        self.fails = fails

    def call(self, name: str) -> None:
        if name in self.fails:
            raise ValueError(name)

    def check(self) -> None:
        kinds = Counter(type(thing).__name__ for thing in self.opened)
        assert Counter(map(id, self.closed)) == Counter(map(id, self.opened)), kinds
        assert set(Counter(map(id, self.closed)).values()) <= {1}


class Splits(Source):
    def __init__(self, ledger: Ledger, *, endless: bool) -> None:
        self._ledger = ledger
        self._endless = endless

    def discover(self) -> Iterable[str]:
        return [f"split-{n}" for n in range(6)]

    def open(self, split: str, position: Any) -> SplitReader:
        reader = _Reader(self._ledger, position or 0, endless=self._endless)
        self._ledger.opened.append(reader)
        return reader


class _Reader(SplitReader):
    delay_s = 0.2

    def __init__(self, ledger: Ledger, position: int, *, endless: bool) -> None:
        self.position = position
        self._ledger = ledger
        self._endless = endless
        self._turn = 0

    def read(self) -> list[Any] | None:
        self._turn += 1
        if self._turn % 12:  # long enough that all splits of a task have nothing, and it waits
            return []
        if self.position == 12 and not self._endless:
            return None
        if self.position == 6:
            self._ledger.call("read")
        self.position += 1
        return [self.position]

    def close(self) -> None:
        self._ledger.closed.append(self)
        self._ledger.call("close reader")


class Passing(StatefulProcessor):
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def init(self, handle: StatefulProcessorHandle) -> None:
        if any(isinstance(thing, Passing) for thing in self._ledger.opened):
            self._ledger.call("second init")
        self._ledger.opened.append(self)

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Any], timerValues: Any
    ) -> Iterator[Any]:
        return rows

    def close(self) -> None:
        self._ledger.closed.append(self)
        self._ledger.call("close processor")


class Shelf(Sink):
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def open(self, context: SinkContext) -> SinkWriter:
        if context.subtask:
            self._ledger.call("second open")
        writer = _Writer(self._ledger)
        self._ledger.opened.append(writer)
        return writer


class _Writer(SinkWriter):
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.release: threading.Event | None = None
        self.reached = threading.Event()
        self.busy = False

    def recover(self, transactions: Sequence[bytes]) -> None:
        self._ledger.call("recover")

    def write(self, records: Sequence[Any]) -> None:
        self._ledger.call("write")

    def pre_commit(self, checkpoint: CheckpointId) -> bytes | None:
        if self.release is not None:
            self.busy = True
            self.reached.set()
            self.release.wait()
            self.busy = False
        return b"token"

    def commit(self, transaction: bytes) -> None:
        self._ledger.call("commit")

    def close(self) -> None:
        assert not self.busy
        self._ledger.closed.append(self)
        self._ledger.call("close sink")


def job_of(ledger: Ledger, *, endless: bool) -> Job:
    job = Job("closing")
    records = job.source(Splits(ledger, endless=endless)).key_by(lambda n: n)
    records.transform_with_state(lambda: Passing(ledger)).sink(Shelf(ledger))
    return job


def runner_of(
    ledger: Ledger,
    *,
    endless: bool = False,
    store: MemoryStore | None = None,
    clock: VirtualClock | None = None,
) -> JobRunner:
    world = in_virtual_time(1, clock)
    return JobRunner(job_of(ledger, endless=endless), store or MemoryStore(), config(), world)


def test_at_the_end_of_the_data() -> None:
    ledger = Ledger()
    asyncio.run(runner_of(ledger).run())
    ledger.check()
    assert len(ledger.opened) == 6 + 2 + 2


STARTING = ["second open", "recover", "second init"]
RUNNING = ["read", "write", "commit"]
CLOSING = ["close reader", "close processor", "close sink"]


@pytest.mark.parametrize("place", STARTING + RUNNING + CLOSING)
def test_at_a_failure(place: str) -> None:
    """One that closes something keeps nothing else open."""
    ledger = Ledger(place)
    with pytest.raises(UserFunctionError, match=place):
        asyncio.run(runner_of(ledger).run())
    ledger.check()
    assert len(ledger.opened) > (0 if place in STARTING else 2 + 2)


def test_no_file_stays_where_a_job_with_nothing_left_to_do_cannot_close(tmp_path: Path) -> None:
    store, ledger = MemoryStore(), Ledger("close sink")
    asyncio.run(runner_of(Ledger(), store=store).run())
    runner = runner_of(ledger, store=store)
    runner.config = config(work_dir=tmp_path)
    with pytest.raises(UserFunctionError, match="close sink"):
        asyncio.run(runner.run())
    ledger.check()
    assert not list(tmp_path.glob("*/*"))


@pytest.mark.parametrize("drain", [True, False], ids=["drain", "stop"])
async def test_at_a_stop_with_a_savepoint(drain: bool) -> None:
    ledger, clock = Ledger(), VirtualClock()
    runner = runner_of(ledger, endless=True, clock=clock)
    running = asyncio.ensure_future(runner.run())
    await clock.sleep(3.0)
    await runner.stop("last", drain=drain)
    await running
    ledger.check()
    assert len(ledger.opened) == 6 + 2 + 2


async def test_at_a_cancellation() -> None:
    ledger, clock = Ledger(), VirtualClock()
    running = asyncio.ensure_future(runner_of(ledger, endless=True, clock=clock).run())
    await clock.sleep(3.0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    ledger.check()


async def test_when_a_newer_start_has_fenced_it() -> None:
    ledger, clock, store = Ledger(), VirtualClock(), MemoryStore()
    older = asyncio.ensure_future(runner_of(ledger, endless=True, clock=clock, store=store).run())
    await clock.sleep(3.0)
    newer = runner_of(Ledger(), endless=True, clock=clock, store=store)
    async with running(newer):
        with pytest.raises(FencedError):
            await older
    ledger.check()


@pytest.mark.parametrize("place", CLOSING)
def test_a_close_that_fails_does_not_hide_why_the_job_failed(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = Ledger("write", place)
    with pytest.raises(UserFunctionError, match="ValueError: write"):
        asyncio.run(runner_of(ledger).run())
    ledger.check()
    assert place in caplog.text


async def test_a_sink_is_closed_when_the_call_under_way_has_returned() -> None:
    """A cancelled job waits for its threads before it closes what they work with."""
    ledger, release = Ledger(), threading.Event()
    settings = JobConfig(parallelism=1, table="memory", checkpoint=CheckpointConfig(interval=0.05))
    runner = JobRunner(job_of(ledger, endless=True), MemoryStore(), settings)
    running = asyncio.ensure_future(runner.run())
    while not (writers := [w for w in ledger.opened if isinstance(w, _Writer)]):
        await asyncio.sleep(0)
    writers[0].release = release
    while not writers[0].reached.is_set():
        await asyncio.sleep(0.01)
    running.cancel()
    for _ in range(100):
        await asyncio.sleep(0)
    assert writers[0] not in ledger.closed
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    ledger.check()


class Waiting(Source):
    """A source whose `read` blocks in a thread, as the client of a message broker does."""

    blocking = True

    def __init__(self) -> None:
        self.reading, self.release = threading.Event(), threading.Event()
        self.ended: list[str] = []

    def discover(self) -> Iterable[str]:
        return ["split"]

    def open(self, split: str, position: Any) -> SplitReader:
        return _WaitingReader(self)


class _WaitingReader(SplitReader):
    position = 0

    def __init__(self, source: Waiting) -> None:
        self._source = source

    def read(self) -> list[Any] | None:
        self._source.reading.set()
        self._source.release.wait()
        self._source.ended.append("read")
        return []

    def close(self) -> None:
        self._source.ended.append("close")


async def test_a_reader_is_closed_by_the_thread_that_still_reads() -> None:
    """The job does not wait for a read that may never return, and does not close under its feet."""
    source, job = Waiting(), Job("waiting")
    job.source(source).sink(Outside())
    running = asyncio.ensure_future(JobRunner(job, MemoryStore(), JobConfig()).run())
    while not source.reading.is_set():
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert source.ended == []
    source.release.set()
    while len(source.ended) < 2:
        await asyncio.sleep(0.01)
    assert source.ended == ["read", "close"]


@pytest.mark.parametrize("changelog", [True, False], ids=["log", "tables"])
async def test_a_job_that_is_cancelled_leaves_nothing_running(changelog: bool) -> None:
    """Also uploads that a checkpoint waits for: what they read is closed right after."""
    store = SteerableStore(MemoryStore())
    for prefix in ("segments/", "tables/", "materializations/"):
        store.hold(prefix)
    settings = config(changelog=changelog, upload=UploadConfig(inline_bytes=0))
    words = [f"w{n}" for n in range(400)]
    job = word_count(Portions({"a": words, "b": words}), Outside())
    async with running(JobRunner(job, store, settings, effects())) as task:
        while not store.waiting:
            await asyncio.sleep(0)
            assert not task.done()
    own = asyncio.current_task()
    left = [task for task in asyncio.all_tasks() if task is not own]
    assert ([task for task in left if "VirtualClock" not in repr(task)]) == []
