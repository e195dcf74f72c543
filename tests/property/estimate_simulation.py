"""A job with known rates on the real runtime, in virtual time, and what it leaves in a store.

Sources, tasks, write buffers, uploader, checkpoints, materializations and retention are the real
ones; only the clock, the store (memory, with a history) and the table's files are stand-ins.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from tests.support.clock import VirtualClock
from tidelog.checkpoint.schedule import Schedule
from tidelog.connectors.program.callback import Callback
from tidelog.cost.model.settings import Settings
from tidelog.cost.model.tables import TableRules
from tidelog.cost.model.workload import Workload
from tidelog.effects import Effects, InlineOffload
from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.operators.operator import Operator, OperatorContext
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.source import Source, SplitReader
from tidelog.state.key_groups import encode_key
from tidelog.storage.memory import MemoryStore
from tidelog.table.memory import MemoryTable
from tidelog.table.port import Table, TableFile

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

    def written(self, kind: str) -> list[Life]:
        return [life for life in self._of(kind) if self.start <= life.start < self.end]

    def deleted(self) -> int:
        return sum(self.start <= life.end < self.end for life in self.lives)

    def mean_bytes(self, kind: str) -> float:
        """Bytes stored on average."""
        total = 0.0
        for life in self._of(kind):
            seconds = min(life.end, self.end) - max(life.start, self.start)
            total += life.bytes * max(0.0, seconds)
        return total / (self.end - self.start)

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

    def _store(self, name: str, data: bytes) -> None:
        super()._store(name, data)
        life = self._alive[name] = Life(name, len(data), self.clock.monotonic())
        self.lives.append(life)

    async def delete(self, name: str) -> None:
        await super().delete(name)
        if name in self._alive:
            self._alive.pop(name).end = self.clock.monotonic()


class LeveledTable(MemoryTable):
    """Rows in memory, files as RocksDB would have them: a level 0 that is merged into the rest."""

    def __init__(self, rules: TableRules) -> None:
        super().__init__()
        self.rules = rules
        self.level0: list[tuple[str, dict[bytes, int]]] = []
        self.base: list[tuple[str, int]] = []
        self.memtable: dict[bytes, int] = {}
        self.filled = 0
        self._count = 0

    def write(self, keys: Any, values: Any) -> None:
        super().write(keys, values)
        self.merge_if_due()
        for key, value in zip(keys, values, strict=True):
            size = len(key) + len(value)
            self.memtable[key] = size
            self.filled += size + self.rules.memtable_row_bytes
            if self.filled >= self.rules.memtable_bytes:
                self.flush()
                self.merge_if_due()

    def flush(self) -> None:
        if self.memtable:
            self.level0.append((self._name(), self.memtable))
        self.memtable, self.filled = {}, 0

    def merge_if_due(self) -> None:
        """Enough files lie in level 0: they become one, or everything becomes new."""
        if len(self.level0) < self.rules.level0_files:
            return
        rows = {key: size for _, file in self.level0 for key, size in file.items()}
        base_bytes = sum(size for _, size in self.base)
        if sum(rows.values()) * self.rules.level_ratio < base_bytes:
            self.level0 = [(self._name(), rows)]
            return
        self.level0 = []
        unflushed = sum(self.memtable.values())
        whole, rest = divmod(self.size_bytes() - unflushed, self.rules.file_bytes)
        sizes = [self.rules.file_bytes] * whole + ([rest] if rest else [])
        self.base = [(self._name(), size) for size in sizes]

    def prepare_snapshot(self) -> None:
        self.flush()

    def files(self) -> dict[str, int]:
        """All files of the table and their sizes."""
        return dict(self.base) | {name: sum(rows.values()) for name, rows in self.level0}

    def snapshot(self, directory: Path) -> list[TableFile]:
        self.flush()
        directory.mkdir(parents=True)
        private = directory / "PRIVATE"
        private.write_bytes(bytes(int(self.rules.private_bytes)))
        files = [TableFile(private.name, private, int(self.rules.private_bytes), False)]
        for name, size in self.files().items():
            path = directory / name
            path.write_bytes(name.encode().ljust(size, b".")[:size])  # named by content
            files.append(TableFile(name, path, size, True))
        return files

    def _name(self) -> str:
        self._count += 1
        return f"{self._count:06d}.sst"


@dataclass
class LeveledTables:
    """Opens such tables."""

    rules: TableRules
    kind: str = "rocksdb"
    memtable_bytes: int = 0
    block_cache_bytes: int = 0

    def create(self, directory: Path) -> Table:
        return LeveledTable(self.rules)

    def restore(self, directory: Path) -> Table:
        raise AssertionError("the simulation restores nothing")


@dataclass
class Draws(Source):
    """Keys drawn by their ranks' weights, at a rate, for some seconds; every key once before."""

    workload: Workload
    clock: VirtualClock
    rng: Random
    seconds: float

    def discover(self) -> Iterable[str]:
        return [SPLIT]

    def open(self, split: str, position: Any) -> "DrawReader":
        return DrawReader(self)


class DrawReader(SplitReader):
    delay_s = TICK_S

    def __init__(self, source: Draws) -> None:
        self._source = source
        workload = source.workload
        self._ranks = range(workload.keys)
        weights = [(rank + 1) ** -workload.skew for rank in self._ranks]
        self._weights = list(accumulate(weights))
        self._idle = False
        self._filled = False
        self.position = 0

    def read(self) -> list[str] | None:
        if not self._filled:
            self._filled = True
            return [KEY.format(rank) for rank in self._ranks]
        self._idle = not self._idle
        if self._idle:
            return []
        now = self._source.clock.monotonic()
        if now >= self._source.seconds:
            return None
        count = int(now * self._source.workload.writes_per_s) - self.position
        self.position += count
        drawn = self._source.rng.choices(self._ranks, cum_weights=self._weights, k=count)
        return [KEY.format(rank) for rank in drawn]


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
        self.rows = context.backend.rows(info, bytes, bytes)

    def process(self, batch: Batch) -> Iterable[Batch]:
        assert isinstance(batch, KeyedBatch)
        for group, key in zip(batch.groups, batch.keys, strict=True):
            self.rows.put(group + self.state + key, self.rng.randbytes(self.value_bytes))
        return ()


def simulate(
    workload: Workload, settings: Settings, rules: TableRules, warm_s: float, seconds: float
) -> History:
    """Run the job for `warm_s` and then `seconds`, and tell what happened in the latter."""
    clock = VirtualClock()
    rng = Random(1)
    store = RecordingStore(clock)
    job = a_job(workload, clock, rng, warm_s + seconds + 1)
    effects = Effects(clock, rng, InlineOffload())
    tables = "tidelog.runtime.subtasks.resources.RocksTableFactory"
    with configured(settings) as config, patch(tables, lambda memory: LeveledTables(rules)):
        asyncio.run(JobRunner(job, store, config, effects).run())
    return History(store.lives, warm_s, warm_s + seconds)


def a_job(workload: Workload, clock: VirtualClock, rng: Random, seconds: float) -> Job:
    """The workload for so many seconds."""
    job = Job("simulated")
    source = job.source(Draws(workload, clock, rng, seconds), parallelism=1)
    writing = source.key_by(lambda key: key)._then(
        "write", lambda: Writer(workload.value_bytes, rng), keyed=True
    )
    writing.sink(Callback(lambda _: None))
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
            checkpoint=Schedule(interval=settings.checkpoint_interval),
            flush=settings.flush,
            upload=settings.upload,
            materialize=settings.materialize,
        )
    finally:
        shutil.rmtree(directory)
