"""A job with known rates on the real runtime, in virtual time: what it leaves in a store, and what
checkpoints and restarts take at the model of one.

The whole runtime is real, RocksDB included; only the clock and the store (memory, with a history)
are stand-ins. Code takes no time on this clock, so what is measured is requests and bytes alone.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

from tests.support.clock import VirtualClock, in_virtual_time
from tests.support.jobs import store_of
from tests.support.pipelines import running
from tidelog import CheckpointConfig, ForeachSink, Job, JobConfig, JobRunner, Source, SplitReader
from tidelog.cost.model.job import Settings, Workload
from tidelog.effects import Effects, InlineOffload
from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.runtime.operators.operator import Operator, OperatorContext
from tidelog.state.key_groups import encode_key
from tidelog.storage.memory import MemoryStore
from tidelog_bench.store import Kind, LatencyProfile, ModelledStore, Traffic

TICK_S = 0.01
SPLIT = "a-split-that-has-a-name-as-long-as-a-path-may"
KEY = "{:06d}"
KEY_BYTES = len(encode_key(KEY.format(0)))


@dataclass
class Life:
    """One object: when it was written and deleted, and its size."""

    name: str
    bytes: int
    start: float
    end: float = float("inf")


@dataclass
class History:
    """Everything that happened in a store between two moments."""

    lives: list[Life]
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def written(self, kind: str) -> list[Life]:
        return [life for life in self._of(kind) if self.start <= life.start < self.end]

    def mean_bytes(self, kind: str) -> float:
        """Bytes stored on average."""
        total = 0.0
        for life in self._of(kind):
            seconds = min(life.end, self.end) - max(life.start, self.start)
            total += life.bytes * max(0.0, seconds)
        return total / self.seconds

    def peak_bytes(self, kind: str) -> int:
        """Bytes stored at most."""
        steps = [(life.start, life.bytes) for life in self._of(kind)]
        steps += [(life.end, -life.bytes) for life in self._of(kind)]
        steps.sort()
        levels = accumulate(change for _, change in steps)
        pairs = zip(steps, levels, strict=True)
        return max(level for (at, _), level in pairs if self.start <= at < self.end)

    def _of(self, kind: str) -> Iterator[Life]:
        return (life for life in self.lives if life.name.startswith(kind))


class RecordingStore(MemoryStore):
    """A store that remembers when objects came and went."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self.clock = clock
        self.lives: list[Life] = []
        self._alive: dict[str, Life] = {}

    @property
    def objects(self) -> dict[str, bytes]:
        """A copy of what is stored."""
        return dict(self._objects)

    def _store(self, name: str, data: bytes) -> None:
        super()._store(name, data)
        life = self._alive[name] = Life(name, len(data), self.clock.monotonic())
        self.lives.append(life)

    async def delete(self, name: str) -> None:
        await super().delete(name)
        if name in self._alive:
            self._alive.pop(name).end = self.clock.monotonic()


@dataclass
class Paced(Source):
    """Records at a rate, for some seconds; `first` come before."""

    clock: VirtualClock
    per_s: float
    make: Callable[[int], list[Any]]
    """So many records."""
    seconds: float = float("inf")
    first: Sequence[Any] = ()
    delay_s: float = TICK_S

    def discover(self) -> Iterable[str]:
        return [SPLIT]

    def open(self, split: str, position: Any) -> "PacedReader":
        return PacedReader(self)


class PacedReader(SplitReader):
    def __init__(self, source: Paced) -> None:
        self.delay_s = source.delay_s
        self.position = 0
        self._source = source
        self._idle = True
        self._first = source.first

    def read(self) -> list[Any] | None:
        source, first = self._source, self._first
        if first:
            self._first = ()
            return list(first)
        self._idle = not self._idle
        if not self._idle:
            return []
        now = source.clock.monotonic()
        if now >= source.seconds:
            return None
        count = int(now * source.per_s) - self.position
        self.position += count
        return source.make(count)


@dataclass
class Writer(Operator):
    """Puts a row per record; its value is random, so that blocks do not compress."""

    value_bytes: int
    rng: Random
    rows: Any = field(init=False)
    state: bytes = field(init=False)

    def open(self, context: OperatorContext) -> None:
        info = context.backend.registry.register("rows", "value", ("msgpack",))
        self.state = info.id.to_bytes(2, "big")
        self.rows = context.backend.rows(bytes, bytes)

    def process(self, batch: Batch) -> Iterable[Batch]:
        assert isinstance(batch, KeyedBatch)
        for group, key in zip(batch.groups, batch.keys, strict=True):
            self.rows.put(group + self.state + key, self.rng.randbytes(self.value_bytes))
        return ()


def a_job(workload: Workload, clock: VirtualClock, rng: Random, seconds: float) -> Job:
    """The workload for so many seconds: every key once, then keys by their ranks' weights."""
    job, keys = Job("simulated"), [KEY.format(rank) for rank in range(workload.keys)]
    weights = list(accumulate((rank + 1) ** -workload.skew for rank in range(workload.keys)))
    drawn = Paced(
        *(clock, workload.writes_per_s),
        lambda count: rng.choices(keys, cum_weights=weights, k=count),
        *(seconds, keys),
    )
    source = job.source(drawn, parallelism=1)
    writing = source.key_by(lambda key: key)._then(
        "write", lambda: Writer(workload.value_bytes, rng), keyed=True
    )
    writing.sink(ForeachSink(lambda _: None))
    return job


@contextmanager
def configured(settings: Settings, *, changelog: bool = True) -> Iterator[JobConfig]:
    """The settings as a job has them, with a directory that goes in the end."""
    directory = Path(tempfile.mkdtemp(prefix="tidelog-estimate-"))
    try:
        yield JobConfig(
            parallelism=settings.parallelism,
            key_groups=16 * settings.parallelism,
            table="rocksdb",
            changelog=changelog,
            work_dir=directory,
            retain=settings.retain,
            checkpoint=CheckpointConfig(interval=settings.checkpoint_interval),
            flush=settings.flush,
            upload=settings.upload,
            materialize=settings.materialize,
        )
    finally:
        shutil.rmtree(directory)


@dataclass(frozen=True)
class Restart:
    """From the start of the process to running tasks."""

    seconds: float
    requests: Mapping[Kind, int]


@dataclass(frozen=True)
class Measured:
    """What was measured."""

    checkpoints_s: list[float]
    """Each from its barrier to the proof that it counts."""
    history: History
    traffic: Traffic
    """While these checkpoints were taken."""
    restarts: list[Restart]
    """After a crash at one moment each."""

    @property
    def longest(self) -> Restart:
        return max(self.restarts, key=lambda restart: restart.seconds)


def measure(
    workload: Workload,
    settings: Settings,
    *,
    warm_s: float,
    seconds: float,
    crashes: int = 16,
    changelog: bool = True,
) -> Measured:
    """Run the job for `warm_s`, measure `seconds`, in which it crashes at even distances."""
    clock = VirtualClock()
    inner = RecordingStore(clock)
    store = ModelledStore(inner, clock, _latencies(settings))
    copies: list[dict[str, bytes]] = []

    async def scenario(config: JobConfig) -> tuple[list[float], Traffic]:
        rng = Random(1)
        job = a_job(workload, clock, rng, 10 * (warm_s + seconds))
        runner = JobRunner(job, store, config, Effects(clock, rng, InlineOffload()))
        async with running(runner) as task:
            await clock.sleep(warm_s)
            assert runner.incarnation is not None
            before, first = store.totals(), runner.incarnation.driver.metrics.completed
            for _ in range(crashes):
                await clock.sleep(seconds / crashes)
                copies.append(inner.objects)
            assert not task.done(), task
            traffic = store.totals().since(before)
            return list(runner.incarnation.driver.metrics.durations_s)[first:], traffic

    with configured(settings, changelog=changelog) as config:
        durations, traffic = asyncio.run(scenario(config))
        restarts = [_restart(workload, settings, config, objects) for objects in copies]
    history = History(inner.lives, warm_s, warm_s + seconds)
    return Measured(durations, history, traffic, restarts)


def _restart(
    workload: Workload, settings: Settings, config: JobConfig, objects: Mapping[str, bytes]
) -> Restart:
    async def scenario() -> Restart:
        clock = VirtualClock()
        store = ModelledStore(store_of(objects), clock, _latencies(settings))
        job = a_job(workload, clock, Random(2), 1e9)
        runner = JobRunner(job, store, config, in_virtual_time(3, clock))
        up = asyncio.Event()
        running = asyncio.ensure_future(runner.run(up.set))
        # A start that fails must not be waited for.
        running.add_done_callback(lambda _: up.set())
        await up.wait()
        assert not running.done(), running
        found = Restart(clock.monotonic(), dict(store.requests))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return found

    return asyncio.run(scenario())


def _latencies(settings: Settings) -> LatencyProfile:
    link = settings.link
    return LatencyProfile(latency_ms=link.latency_s * 1e3, mb_per_s=link.bytes_per_s / 1e6)
