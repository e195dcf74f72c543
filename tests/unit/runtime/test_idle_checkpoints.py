"""A job that has nothing to do asks nothing of its store, and loses and repeats nothing by it."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.faults import FaultyStore
from tests.support.pipelines import Outside, acted_on, completed, config, copy, effects, running
from tests.support.pressure import checkpoints
from tests.support.workers import runner_of, with_workers
from tidelog import CheckpointConfig, FileSink, JobRunner
from tidelog.effects import Effects
from tidelog.errors import FencedError
from tidelog.runtime.graph import Job
from tidelog.runtime.source import Source, SplitReader
from tidelog.runtime.status.observe import status_of
from tidelog.state.processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from tidelog.storage.memory import MemoryStore

HOUR_S = 3600.0


class Feed(Source):
    """One split that never ends; a test puts records into it."""

    def __init__(self, records: Iterable[Any] = ()) -> None:
        self.records = list(records)

    def discover(self) -> Iterable[str]:
        return ["feed"]

    def open(self, split: str, position: Any) -> SplitReader:
        return _FeedReader(self, position or 0)


class _FeedReader(SplitReader):
    delay_s = 0.1

    def __init__(self, feed: Feed, position: int) -> None:
        self._feed = feed
        self.position = position

    def read(self) -> list[Any]:
        records = self._feed.records[self.position :]
        self.position += len(records)
        return records


class RunningCount(StatefulProcessor):
    """Emits each word with how often it has come."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.count = handle.getValueState("count", "count long")

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[Any]:
        (before,) = self.count.get() or (0,)
        counts = [before + number for number, _ in enumerate(rows, 1)]
        self.count.update((counts[-1],))
        for count in counts:
            yield key[0], count


def running_count(feed: Feed, sink: Outside) -> Job:
    job = Job("running-count")
    job.source(feed).key_by(lambda word: word).transform_with_state(RunningCount).sink(sink)
    return job


def observed(inner: MemoryStore, world: Effects) -> FaultyStore:
    return FaultyStore(inner, [], world.clock)


def operations(store: FaultyStore, since: int) -> Counter[str]:
    return Counter(operation for operation, _ in store.calls[since:])


def words_of(sink: Outside) -> Counter[str]:
    """How far each word was counted in committed output."""
    return Counter(dict(sorted(sink.records, key=lambda row: row[1])))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("changelog", [True, False])
def test_an_idle_job_asks_nothing_of_its_store_however_long_it_is_idle(
    workers: int, changelog: bool
) -> None:
    async def idle() -> None:
        world = effects()
        store, feed, sink = observed(MemoryStore(), world), Feed("abcab"), Outside()
        never_checked = CheckpointConfig(interval=1.0, object_check_interval=None)
        settings = config(changelog=changelog, checkpoint=never_checked)
        with with_workers(workers):
            runner = runner_of(running_count(feed, sink), store, settings, world)
        async with running(runner):
            await world.clock.sleep(60)
            assert words_of(sink) == {"a": 2, "b": 2, "c": 1}
            since, taken = len(store.calls), completed(runner)
            await world.clock.sleep(HOUR_S)
            assert operations(store, since) == {}
            assert completed(runner) == taken
            feed.records += "cd"
            await world.clock.sleep(1.5)
            assert words_of(sink) == {"a": 2, "b": 2, "c": 2, "d": 1}

    asyncio.run(idle())


def test_a_file_of_an_idle_job_is_complete_at_its_age(tmp_path: Path) -> None:
    async def idle() -> None:
        world = effects()
        sink = FileSink(tmp_path / "out", "text", roll_every=HOUR_S)
        runner = JobRunner(copy(Feed("abc"), sink), MemoryStore(), config(), world)
        async with running(runner):
            await world.clock.sleep(HOUR_S - 60)
            assert not complete_files(tmp_path / "out")
            taken = completed(runner)
            await world.clock.sleep(120)
            assert complete_files(tmp_path / "out")
            assert completed(runner) == taken + 1
            await world.clock.sleep(HOUR_S)
            assert completed(runner) == taken + 1

    asyncio.run(idle())


def complete_files(directory: Path) -> list[Path]:
    return list(directory.glob("part-*"))


def test_a_job_that_is_idle_since_its_start_takes_its_first_checkpoints_and_no_more() -> None:
    async def idle() -> None:
        world, store = effects(), MemoryStore()
        runner = JobRunner(running_count(Feed(), Outside()), store, config(), world)
        async with running(runner):
            await world.clock.sleep(HOUR_S)
            assert 1 <= completed(runner) <= 2, "of what it has declared, and its first table"

    asyncio.run(idle())


def test_an_idle_job_is_not_said_to_be_late_with_its_checkpoint() -> None:
    async def idle() -> None:
        world = effects()
        runner = JobRunner(running_count(Feed("ab"), Outside()), MemoryStore(), config(), world)
        async with running(runner):
            await world.clock.sleep(HOUR_S)
            age_s = status_of(runner).checkpoints.age_s
            assert age_s is not None and age_s <= 1.1

    asyncio.run(idle())


def filtered(feed: Feed, sink: Outside) -> Job:
    job = Job("filtered")
    job.source(feed).filter(lambda word: word != "drop").sink(sink)
    return job


async def _fed(
    feed: Feed, world: Effects, record: str, seconds: int, look: Callable[[], None] = lambda: None
) -> None:
    for _ in range(seconds):
        feed.records.append(record)
        await world.clock.sleep(1.0)
        look()


@pytest.mark.parametrize("workers", [1, 2])
def test_where_only_the_position_changes_checkpoints_come_at_the_idle_interval(
    workers: int,
) -> None:
    async def busy_with_nothing() -> None:
        world, store, feed = effects(), MemoryStore(), Feed()
        settings = config(checkpoint=CheckpointConfig(interval=1.0, idle_interval=20.0))
        with with_workers(workers):
            runner = runner_of(filtered(feed, Outside()), store, settings, world)
        async with running(runner):
            await _fed(feed, world, "drop", 5)
            first = completed(runner)
            await _fed(feed, world, "drop", 200)
            assert completed(runner) - first == 10
            await _fed(feed, world, "keep", 10)
            assert 18 <= completed(runner) - first <= 22, "output is committed at each interval"

    asyncio.run(busy_with_nothing())


@pytest.mark.parametrize("crash_after_s", [0.4, 1.4, 2.4, 3.4, 300.0])
def test_a_crash_of_an_idle_job_neither_loses_nor_repeats_output(crash_after_s: float) -> None:
    store, feed, sink = MemoryStore(), Feed(), Outside()
    for more in ("abca", "bd", "a", ""):
        feed.records += more
        acted_on(running_count(feed, sink), store, at=crash_after_s, crash=True)
    acted_on(running_count(feed, sink), store, at=5, crash=True)
    assert Counter(sink.records) == Counter(
        [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("c", 1), ("d", 1)]
    )


def test_the_last_checkpoint_of_an_idle_job_names_no_output_that_was_committed_long_ago() -> None:
    async def idle() -> Sequence[bytes]:
        world, store, sink = effects(), MemoryStore(), Outside()
        async with running(JobRunner(copy(Feed("abc"), sink), store, config(), world)):
            await world.clock.sleep(60)
        assert sorted(sink.records) == ["a", "b", "c"]
        (*_, newest) = await asyncio.to_thread(checkpoints, store)
        return [each for _, state in newest.subtasks() for each in state.transactions]

    assert asyncio.run(idle()) == []


def test_who_deletes_a_savepoint_of_an_idle_job_does_not_set_it_back() -> None:
    async def saved() -> None:
        world, store, feed, sink = effects(), MemoryStore(), Feed("ab"), Outside()
        runner = JobRunner(running_count(feed, sink), store, config(), world)
        async with running(runner):
            await world.clock.sleep(10.05)
            feed.records += "a"
            await world.clock.sleep(0.5)
            await runner.savepoint("mine")
            assert ("a", 2) in sink.records
            await world.clock.sleep(60)
        (*_, newest) = await asyncio.to_thread(checkpoints, store)
        assert not hasattr(newest, "name"), "a checkpoint of retention's holds what it held"

    asyncio.run(saved())


def test_an_idle_job_that_a_newer_one_has_replaced_commits_nothing_when_it_wakes_up() -> None:
    async def replaced() -> None:
        world, store, feed, sink = effects(), MemoryStore(), Feed("ab"), Outside()
        older = asyncio.ensure_future(JobRunner(copy(feed, sink), store, config(), world).run())
        await world.clock.sleep(60)
        started = asyncio.Event()
        newer = JobRunner(copy(feed, sink), store, config(), world).run(started.set)
        running_newer = asyncio.ensure_future(newer)
        await started.wait()
        running_newer.cancel()
        await asyncio.gather(running_newer, return_exceptions=True)
        assert not older.done(), "it asks nothing of its store, and has not noticed"
        feed.records += "c"
        with pytest.raises(FencedError):
            await older
        assert sorted(sink.records) == ["a", "b"]

    asyncio.run(replaced())


class Reminder(StatefulProcessor):
    """Emits a key half a minute after its records."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[Any]:
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 30_000)
        yield from ()

    def handleExpiredTimer(
        self, key: tuple[Any, ...], timerValues: TimerValues, expired: ExpiredTimerInfo
    ) -> Iterator[Any]:
        yield key[0]


def test_timers_of_an_idle_job_fire_and_their_output_is_committed() -> None:
    async def reminders() -> None:
        world, store, feed, sink = effects(), MemoryStore(), Feed("aab"), Outside()
        job = Job("timers")
        keyed = job.source(feed).key_by(lambda word: word)
        keyed.transform_with_state(Reminder, time_mode="processing").sink(sink)
        async with running(JobRunner(job, store, config(), world)):
            await world.clock.sleep(25)
            assert sink.records == []
            await world.clock.sleep(10)
            assert sorted(sink.records) == ["a", "b"]

    asyncio.run(reminders())
