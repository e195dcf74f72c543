"""What every micro-benchmark gets: the yardstick beside it, a table, a backend."""

import random
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.micro.inputs import KEY_GROUPS
from tidelog.changelog.block import SealedBlock
from tidelog.changelog.change import ChangeBatch
from tidelog.effects import SystemClock
from tidelog.ids import KeyGroup
from tidelog.state.backend import KeyedBackend
from tidelog.state.key_groups import KeyGroupRange
from tidelog.state.registry import StateRegistry
from tidelog.table.rocksdb import RocksTable, RocksTableFactory

REPEATS = 9
"""The yardstick is work that has nothing to do with tidelog. It never changes, or all stored
baselines have to be renewed; and like the benchmarks it is timed by the processor time of the
calling thread, so waiting for a processor does not count.
"""

_RNG = random.Random(1)
_KEYS = [_RNG.randbytes(20) for _ in range(2_000)]


def yardstick_work() -> int:
    """What tidelog's calls are made of: dicts, sorting, small byte strings, loops, compression."""
    rows: dict[bytes, int] = {}
    for at, key in enumerate(_KEYS):
        rows[key] = rows.get(key, 0) + at
    ordered = sorted(rows)
    columns = b"".join(ordered), bytes(rows[key] & 0xFF for key in ordered)
    return len(zlib.compress(b"".join(columns), 1))


def yardstick_s() -> float:
    """Processor seconds of the shortest of a few runs: others only ever make one longer."""
    shortest = float("inf")
    for _ in range(REPEATS):
        start = time.thread_time()
        yardstick_work()
        shortest = min(shortest, time.thread_time() - start)
    return shortest


@pytest.fixture(autouse=True)
def yardstick(benchmark: BenchmarkFixture) -> Iterator[None]:
    """Time the yardstick before and after, so that the machine's speed can be divided out."""
    if benchmark.disabled:
        yield
        return
    before = yardstick_s()
    yield
    benchmark.extra_info["yardstick_s"] = min(before, yardstick_s())


@pytest.fixture
def table(tmp_path: Path) -> Iterator[RocksTable]:
    """An empty RocksDB table with the default options."""
    table = RocksTableFactory().create(tmp_path / "table")
    yield table
    table.close()


class Dropped:
    """A log that drops what it gets: the uploader has benchmarks of its own."""

    changes = 0

    def submit(self, batch: ChangeBatch) -> None:
        """Only counts."""
        self.changes += len(batch)

    def submit_metadata(self, block: SealedBlock) -> None:
        """Nothing."""


@pytest.fixture
def backend(table: RocksTable) -> KeyedBackend:
    """The state of a subtask that owns all key groups."""
    clock = SystemClock()
    return KeyedBackend(
        registry=StateRegistry("operator"),
        key_groups=KEY_GROUPS,
        owned=KeyGroupRange(KeyGroup(0), KeyGroup(KEY_GROUPS - 1)),
        table=table,
        log=Dropped(),
        now_ms=clock.now_ms,
        monotonic=clock.monotonic,
    )
