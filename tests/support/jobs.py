"""Small jobs that fill a store for tests: every kind of state, several checkpoints and slots.

They run in virtual time with all I/O inline, so a store filled by the same call is the same.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from tests.support.clock import in_virtual_time
from tidelog.changelog.upload_config import UploadConfig
from tidelog.checkpoint.config import CheckpointConfig
from tidelog.connectors.program import ForeachSink
from tidelog.effects import Effects
from tidelog.errors import UserFunctionError
from tidelog.materialize.schedule import MaterializeConfig
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.runner import JobResult, JobRunner
from tidelog.runtime.source import Source, SplitReader
from tidelog.state.processor import StatefulProcessor, StatefulProcessorHandle, TimerValues
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectStore

WORDS = [f"word-{number % 40}" for number in range(400)]


class Tide(Source):
    """Reads words in small portions with a pause after each, so that checkpoints lie between.

    With `breaks_at` it fails there: the job ends without a final checkpoint.
    """

    def __init__(self, words: list[str], breaks_at: int | None = None) -> None:
        self.words = words
        self.breaks_at = breaks_at

    def discover(self) -> list[str]:
        return ["left", "right"]

    def open(self, split: str, position: Any) -> "TideReader":
        return TideReader(self, position or 0)


class TideReader(SplitReader):
    delay_s = 0.4

    def __init__(self, source: Tide, position: int) -> None:
        self._source = source
        self.position = position
        self._paused = False

    def read(self) -> list[Any] | None:
        self._paused = not self._paused
        if self._paused:
            return []
        at, source = self.position, self._source
        if source.breaks_at is not None and at >= source.breaks_at:
            raise UserFunctionError("the source", found="the break", action="start again")
        words = source.words[at : at + 20]
        self.position += len(words)
        return words or None


class EveryKind(StatefulProcessor):
    """One state of each kind for every word, and a timer."""

    def __init__(self, timer_ms: int) -> None:
        self.timer_ms = timer_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.count = handle.getValueState("count", "count long")
        self.seen = handle.getValueState("seen", "at long", 60_000)
        self.history = handle.getListState("history", "length int, word string")
        self.letters = handle.getMapState("letters", "letter string", "times int, share double")
        self.handle = handle

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[Any]:
        words = list(rows)
        count = (self.count.get() or (0,))[0] + len(words)
        self.count.update((count,))
        self.seen.update((7,))
        self.history.appendList([(len(word), word) for word in words])
        for letter in key[0]:
            self.letters.updateValue((letter,), (count, 0.5))
        self.handle.registerTimer(self.timer_ms)
        yield key[0], count


def word_count(
    words: list[str] = WORDS, breaks_at: int | None = None, *, name: str = "count"
) -> Job:
    """Counts words with an aggregate of this name."""
    job = Job("word-count")
    keyed = job.source(Tide(words, breaks_at)).key_by(lambda word: word)
    counted = keyed.aggregate(lambda _: 1, lambda a, b: a + b, name=name)
    counted.sink(ForeachSink(lambda _: None))
    return job


def every_kind(breaks_at: int | None = None, timer_ms: int = 1_900_000_000_000) -> Job:
    """Keeps one state of each kind per word, and a timer that fires at `timer_ms`."""
    job = Job("every-kind")
    keyed = job.source(Tide(WORDS, breaks_at)).key_by(lambda word: word)
    processed = keyed.transform_with_state(
        lambda: EveryKind(timer_ms), time_mode="processing", name="process"
    )
    processed.sink(ForeachSink(lambda _: None))
    return job


def virtual_effects(seed: int = 7) -> Effects:
    return in_virtual_time(seed)


def config(**changes: Any) -> JobConfig:
    """A checkpoint about every second, segments for every tail, a materialization now and then."""
    settings: dict[str, Any] = {
        "parallelism": 2,
        "key_groups": 16,
        "table": "rocksdb",
        "retain": 3,
        "checkpoint": CheckpointConfig(interval=1.0),
        "upload": UploadConfig(inline_bytes=0),
        "materialize": MaterializeConfig(interval=3.0),
    }
    return JobConfig(**{**settings, **changes})


def run(
    store: ObjectStore, job: Job, settings: JobConfig | None = None, *, seed: int = 7
) -> JobResult:
    return asyncio.run(JobRunner(job, store, settings or config(), virtual_effects(seed)).run())


def run_until_break(store: ObjectStore, job: Job, settings: JobConfig | None = None) -> None:
    """Run a job that breaks: its last checkpoint is not the final one."""
    try:
        run(store, job, settings, seed=1)
    except UserFunctionError:
        return
    raise AssertionError("the job was meant to break")


def restarted(job: Callable[..., Job], settings: JobConfig | None = None) -> MemoryStore:
    """A new store after a start of a job that broke off, and one that ended."""
    store = MemoryStore()
    run_until_break(store, job(breaks_at=200), settings)
    run(store, job(), settings)
    return store


def contents(store: ObjectStore) -> Mapping[str, bytes]:
    async def read() -> dict[str, bytes]:
        return {info.name: await store.get(info.name) async for info in store.list("")}

    return asyncio.run(read())


@cache
def filled() -> Mapping[str, bytes]:
    """The objects of such a store; nothing in it is wrong.

    Slots 0 and 4 are starts, 7 to 9 checkpoints; log, tables and descriptors are all there.
    """
    return contents(restarted(every_kind))


def store_of(objects: Mapping[str, bytes]) -> MemoryStore:
    store = MemoryStore()
    for name, data in objects.items():
        with suppress(StopIteration):  # It never waits, so a test with a loop may call this too.
            store.put(name, data).send(None)
    return store


class Dropping(MemoryStore):
    """A store whose job drops some of these objects as soon as someone has read this one."""

    def __init__(self, objects: Mapping[str, bytes], read: str, dropped: Collection[str]) -> None:
        super().__init__()
        for name, data in objects.items():
            self._store(name, data)
        self._read = read
        self._dropped = dropped

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        data = await super().get(name, start, length)
        if name == self._read:
            for gone in self._dropped:
                await self.delete(gone)
        return data
