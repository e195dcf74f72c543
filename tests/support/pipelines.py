"""Whole jobs in virtual time: a source with pauses, a two-phase sink that outlives its job."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.support.clock import in_virtual_time
from tests.support.workers import runner_of
from tidelog.changelog.upload_config import UploadConfig
from tidelog.checkpoint.config import CheckpointConfig
from tidelog.effects import Clock, Effects
from tidelog.ids import CheckpointId
from tidelog.materialize.schedule import MaterializeConfig
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.runner import JobResult, JobRunner
from tidelog.runtime.sink import Sink, SinkContext, SinkWriter
from tidelog.runtime.source import Source, SplitReader
from tidelog.storage.port import ObjectStore


class Portions(Source):
    """Splits of records, read a few at a time with a pause after each portion."""

    def __init__(self, splits: dict[str, list[Any]], portion: int = 5, pause: float = 0.6) -> None:
        self.splits = splits
        self.portion = portion
        self.pause = pause

    def discover(self) -> Iterable[str]:
        return list(self.splits)

    def open(self, split: str, position: Any) -> SplitReader:
        return _PortionReader(self, self.splits[split], position or 0)

    @property
    def records(self) -> list[Any]:
        return [record for split in self.splits.values() for record in split]


class _PortionReader(SplitReader):
    def __init__(self, source: Portions, records: list[Any], position: int) -> None:
        self.position = position
        self.delay_s = source.pause
        self._portion = source.portion
        self._records = records
        # Long enough that now and then all splits of a task have nothing, and it waits.
        self._cycle = 2 * len(source.splits)
        self._turn = 0

    def read(self) -> list[Any] | None:
        self._turn = (self._turn + 1) % self._cycle
        if self._turn:
            return []
        read = self._records[self.position : self.position + self._portion]
        self.position += len(read)
        return read or None


class Within(SplitReader):
    """A reader that does what another one does, until a test makes it do otherwise."""

    def __init__(self, inner: SplitReader) -> None:
        self.inner = inner
        self.delay_s = inner.delay_s

    @property
    def position(self) -> Any:  # type: ignore[override]  # read only here
        return self.inner.position

    def read(self) -> list[Any] | None:
        return self.inner.read()

    def close(self) -> None:
        self.inner.close()


class Outside(Sink):
    """A transactional system outside the job: what is pre-committed survives every crash."""

    def __init__(self) -> None:
        self.prepared: dict[bytes, list[Any]] = {}
        self.committed: dict[bytes, list[Any]] = {}
        self.commits: Counter[bytes] = Counter()

    def open(self, context: SinkContext) -> SinkWriter:
        return _OutsideWriter(self, context)

    @property
    def records(self) -> list[Any]:
        return [record for records in self.committed.values() for record in records]


class _OutsideWriter(SinkWriter):
    def __init__(self, outside: Outside, context: SinkContext) -> None:
        self._outside = outside
        self._context = context
        who = f"{context.name}-{context.subtask}"
        self._prefix = f"{who}/{context.generation}-{context.attempt}"
        self._open: list[Any] = []

    def recover(self, transactions: Sequence[bytes]) -> None:
        for transaction in transactions:
            self.commit(transaction)
        for transaction in list(self._outside.prepared):
            name, _, subtask = transaction.partition(b"/")[0].decode().rpartition("-")
            if name == self._context.name and self._context.recovers_for(int(subtask)):
                del self._outside.prepared[transaction]

    def write(self, records: Sequence[Any]) -> None:
        self._open.extend(records)

    def pre_commit(self, checkpoint: CheckpointId) -> bytes | None:
        if not self._open:
            return None
        token = f"{self._prefix}-{checkpoint}".encode()
        assert token not in self._outside.prepared
        self._outside.prepared[token] = self._open
        self._open = []
        return token

    def commit(self, transaction: bytes) -> None:
        self._outside.commits[transaction] += 1
        if transaction in self._outside.prepared:
            self._outside.committed[transaction] = self._outside.prepared.pop(transaction)
        assert transaction in self._outside.committed, "committed what was never prepared"


def config(**changes: Any) -> JobConfig:
    """A checkpoint a second, a materialization every few, uploads of all but the smallest tails."""
    settings: dict[str, Any] = {
        "parallelism": 2,
        "key_groups": 8,
        "table": "memory",
        "retain": 2,
        "checkpoint": CheckpointConfig(interval=1.0, timeout=60.0),
        "upload": UploadConfig(inline_bytes=100),
        "materialize": MaterializeConfig(interval=2.5, retry_pause=0.1),
    }
    return JobConfig(**{**settings, **changes})


def effects(seed: int = 1) -> Effects:
    return in_virtual_time(seed)


def run(
    job: Job, store: ObjectStore, settings: JobConfig | None = None, seed: int = 1
) -> JobResult:
    """Run one incarnation in a loop and virtual time of its own."""
    return asyncio.run(runner_of(job, store, settings or config(), effects(seed)).run())


def completed(runner: JobRunner) -> int:
    """Checkpoints since the job's start."""
    return runner.incarnation.driver.metrics.completed if runner.incarnation is not None else 0


@asynccontextmanager
async def running(runner: JobRunner) -> "AsyncIterator[asyncio.Task[JobResult]]":
    """A job that runs within the block, and is broken off behind it."""
    task = asyncio.ensure_future(runner.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def acted_on(
    job: Job,
    store: ObjectStore,
    act: Callable[[JobRunner], Awaitable[Any]] | None = None,
    *,
    at: float = 9.2,
    settings: JobConfig | None = None,
    crash: bool = False,
    clock: Clock | None = None,
    **options: Any,
) -> tuple[JobResult | None, Any]:
    """Run a job, `act` on it when it has run for `at` seconds, then crash it or let it end; its
    result and that of `act`. `options` are the runner's.
    """

    async def both() -> tuple[JobResult | None, Any]:
        world, started = in_virtual_time(1, clock), asyncio.Event()
        runner = runner_of(job, store, settings or config(), world, **options)
        running = asyncio.ensure_future(runner.run(started.set))
        running.add_done_callback(lambda _: started.set())
        await started.wait()
        await world.clock.sleep(at)
        answer = await act(runner) if act is not None else None
        if not crash:
            return await running, answer
        assert not running.done(), "it ended before it was to crash"
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return None, answer

    return asyncio.run(both())


def word_count(source: Source, sink: Sink) -> Job:
    job = Job("word-count")
    counted = job.source(source).key_by(lambda w: w).count(name="aggregate")
    counted.sink(sink)
    return job


def copy(source: Source, sink: Sink) -> Job:
    """Every record to the sink, through another task."""
    job = Job("copy")
    job.source(source).rebalance().map(lambda record: record, name="copy").sink(sink)
    return job


def words(splits: int = 2, length: int = 25) -> Portions:
    return Portions(
        {f"split-{s}": [f"w{(s + n * n) % 7}" for n in range(length)] for s in range(splits)}
    )
