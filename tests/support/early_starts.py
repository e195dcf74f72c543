"""Jobs whose state is in many small blocks of a store, for starts that do not wait for it.

The job sums numbers by key, and keeps their history as a list and a map. What it emits for a key is
right only if every row that it has read was the right one.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from random import Random
from typing import Any

from tests.support.jobs import contents
from tests.support.pipelines import Outside
from tidelog import (
    CheckpointConfig,
    Job,
    JobConfig,
    JobRunner,
    MaterializeConfig,
    RestoreConfig,
    RocksDBConfig,
    Sink,
    Source,
    SplitReader,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
    UploadConfig,
)
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectStore

KEYS = 1_500
BEFORE = 6_000
"""Records before the restart."""
AFTER = 3_000
SMALL_BLOCKS = RocksDBConfig(
    block_bytes=512, target_file_bytes=64 << 10, write_buffer_bytes=64 << 10, level0_files=3
)
EARLY = RestoreConfig(begin="at-once", whole_bytes=0)


@cache
def records(seed: int = 1) -> list[tuple[str, int]]:
    rng = Random(seed)
    return [(f"key-{rng.randrange(KEYS):05}", rng.randrange(1000)) for _ in range(BEFORE + AFTER)]


def expected() -> set[tuple[str, int, int, int]]:
    """What the job emits for all records: the sum, the number and the largest of a key's values."""
    sums: dict[str, int] = {}
    counts: dict[str, int] = {}
    largest: dict[str, int] = {}
    emitted: set[tuple[str, int, int, int]] = set()
    for key, value in records():
        sums[key] = sums.get(key, 0) + value
        counts[key] = counts.get(key, 0) + 1
        largest[key] = max(largest.get(key, 0), value)
        emitted.add((key, sums[key], counts[key], largest[key]))
    return emitted


class Fed(Source):
    """Records up to a limit that a test raises; the data ends with the last of them."""

    def __init__(self, limit: int = BEFORE + AFTER) -> None:
        self.limit = limit

    def discover(self) -> list[str]:
        return ["all"]

    def open(self, split: str, position: Any) -> SplitReader:
        return _FedReader(self, position or 0)


class _FedReader(SplitReader):
    delay_s = 0.005

    def __init__(self, source: Fed, position: int) -> None:
        self.position = position
        self._source = source

    def read(self) -> list[Any] | None:
        if self.position == BEFORE + AFTER:
            return None
        end = min(self._source.limit, self.position + 100)
        read = records()[self.position : end]
        self.position = end
        return read


class Ledger(StatefulProcessor):
    """A value, a list and a map of each key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.sum = handle.getValueState("sum", "sum long")
        self.values = handle.getListState("values", "value long, text string")
        self.largest = handle.getMapState("largest", "name string", "value long")

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[Any]:
        for _, value in rows:
            total = (self.sum.get() or (0,))[0] + value
            self.sum.update((total,))
            self.values.appendValue((value, f"value {value} " * 4))
            largest = self.largest.getValue(("value",))
            self.largest.updateValue(("value",), (max(value, largest[0] if largest else 0),))
            count = sum(1 for _ in self.values.get())
            best = self.largest.getValue(("value",))
            assert best is not None
            yield key[0], total, count, best[0]


def job(source: Source, sink: Sink) -> Job:
    made = Job("ledger")
    keyed = made.source(source).key_by(lambda record: record[0])
    keyed.transform_with_state(Ledger, name="ledger").sink(sink)
    return made


def config(**changes: Any) -> JobConfig:
    """Checkpoints all the time, and a table that begins before its files are here."""
    usual: dict[str, Any] = {
        "table": "rocksdb",
        "key_groups": 16,
        "checkpoint": CheckpointConfig(interval=0.05, idle_interval=0.0),
        "upload": UploadConfig(inline_bytes=0),
        "materialize": MaterializeConfig(interval=1e6, replay_target=1e6),
        "restore": EARLY,
        "rocksdb": SMALL_BLOCKS,
    }
    return JobConfig(**{**usual, **changes})


@asynccontextmanager
async def started(
    store: ObjectStore, sink: Sink, source: Fed, **changes: Any
) -> AsyncIterator[JobRunner]:
    """A job that runs in the block and is killed at its end; raises what ends it before."""
    runner, block = JobRunner(job(source, sink), store, config(**changes)), asyncio.current_task()
    assert block is not None
    running = asyncio.ensure_future(runner.run())

    def ended(_: object) -> None:
        block.cancel()

    running.add_done_callback(ended)
    try:
        await until(lambda: runner.running)
        yield runner
    except asyncio.CancelledError:
        if running.done():
            block.uncancel()
            running.result()
        raise
    finally:
        running.remove_done_callback(ended)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        runner.effects.offload.close()


async def until(reached: Callable[[], bool]) -> None:
    """Wait for something that happens soon."""
    async with asyncio.timeout(25):
        while not reached():
            await asyncio.sleep(0.01)


def read(runner: JobRunner) -> int:
    """Records that the job's operator has taken since the start."""
    assert runner.incarnation is not None
    return sum(task.records_in for task in runner.incarnation.tasks if not task.is_source)


def checkpoints(runner: JobRunner) -> int:
    assert runner.incarnation is not None
    return runner.incarnation.driver.metrics.completed


async def durable(runner: JobRunner) -> None:
    """Wait until what was handled is in a checkpoint."""
    count = checkpoints(runner)
    await until(lambda: checkpoints(runner) > count + 1)


async def materialize(runner: JobRunner) -> None:
    assert runner.incarnation is not None
    for materializer in runner.incarnation.states.materializers:
        await materializer.materialize()


@cache
def state() -> tuple[Mapping[str, bytes], Outside]:
    """The objects of a store with the state of the first records, most of it in tables, and what
    the job has committed.
    """
    store, sink, source = MemoryStore(), Outside(), Fed(BEFORE - 200)

    async def fill() -> None:
        async with started(store, sink, source) as runner:
            await until(lambda: read(runner) == BEFORE - 200)
            await materialize(runner)
            source.limit = BEFORE
            await until(lambda: read(runner) == BEFORE)
            await durable(runner)

    asyncio.run(fill())
    return contents(store), sink


async def finish(store: ObjectStore, sink: Sink, **changes: Any) -> JobRunner:
    """Run the job to the end of its data."""
    runner = JobRunner(job(Fed(), sink), store, config(**changes))
    try:
        async with asyncio.timeout(25):
            await runner.run()
    finally:
        runner.effects.offload.close()
    return runner


Act = Callable[[JobRunner], Awaitable[None]]
