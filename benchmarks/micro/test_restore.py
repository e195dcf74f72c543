"""Restore: the log of a subtask back into a table."""

import asyncio
import random
from itertools import count
from pathlib import Path

from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.micro.inputs import KEY_GROUPS, flush
from tidelog.changelog.block import SealedBlock, seal
from tidelog.changelog.segment import BlockGroup, LogRange, SegmentAuthor, pack
from tidelog.checkpoint.manifest import SubtaskState
from tidelog.effects import Effects, InlineOffload, SystemClock
from tidelog.ids import Generation, SeqNo
from tidelog.state.recovery.progress import RestoreProgress
from tidelog.state.recovery.restorer import RestoredSubtask, Restorer
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore
from tidelog.table.rocksdb_factory import RocksTableFactory

SEGMENTS = 4
BLOCKS = 4
ROWS = 4096
CHANGES = SEGMENTS * BLOCKS * ROWS


async def logged(store: MemoryStore) -> tuple[SubtaskState, int]:
    """65,536 changes in four segments, nothing below them; and how many rows they leave."""
    ranges: list[LogRange] = []
    rows: set[bytes] = set()
    for segment in range(SEGMENTS):
        blocks: list[SealedBlock] = []
        for block in range(BLOCKS):
            number = segment * BLOCKS + block
            batch = flush(number * ROWS, ROWS, seed=number)
            rows.update(batch.keys)
            blocks.append(seal(batch))
        name = object_names.segment(Generation(0), "process", segment + 1)
        author = SegmentAuthor(Generation(0), "process", segment + 1)
        packed = pack(author, name, [BlockGroup("operator", 0, blocks)])
        await store.put(name, packed.data)
        ranges += packed.ranges
    state = SubtaskState(0, 0, KEY_GROUPS - 1, SeqNo(CHANGES), "rocksdb", log=tuple(ranges))
    return state, len(rows)


def test_replay(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """Read, check, decode, merge and load 65,536 changes of 21-byte row keys."""
    store, number = MemoryStore(), count()
    effects = Effects(SystemClock(), random.Random(1), InlineOffload())
    factory = RocksTableFactory()
    restored: list[RestoredSubtask] = []

    def prepare() -> tuple[tuple[Path], dict[str, object]]:
        while restored:
            restored.pop().table.close()
        return (tmp_path / str(next(number)),), {}

    with asyncio.Runner() as runner:
        state, rows = runner.run(logged(store))

        def restore(directory: Path) -> None:
            progress = RestoreProgress.of(effects.clock, [state])
            restorer = Restorer(store, effects, factory, progress)
            restored.append(runner.run(restorer.restore(state, directory, "operator-0")))

        benchmark.pedantic(restore, setup=prepare, rounds=10)
    table = restored[0].table
    assert sum(1 for _ in table.scan(b"", None)) == rows
    table.close()
