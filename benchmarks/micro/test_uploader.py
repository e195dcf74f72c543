"""The uploader: small blocks of many subtasks into few objects."""

import asyncio

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.micro.inputs import flush
from tidelog.changelog.block import seal
from tidelog.changelog.cadence import Cadence
from tidelog.changelog.chain import SubtaskLogChain
from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.segment import BlockGroup, SegmentAuthor, pack, read_footer
from tidelog.changelog.upload_config import UploadConfig
from tidelog.changelog.uploader import Uploader
from tidelog.effects import Effects, InlineOffload
from tidelog.ids import Generation
from tidelog.storage import object_names
from tidelog.storage.ledger import Ledger
from tidelog.storage.memory import MemoryStore

ROWS = 50


async def checkpoint(batches: list[ChangeBatch]) -> MemoryStore:
    """Every subtask hands in its changes and waits until they are durable."""
    effects, store = Effects(offload=InlineOffload()), MemoryStore()
    config = UploadConfig(linger=0.0, inline_bytes=0)
    cadence = Cadence(effects.clock)
    uploader = Uploader(store, effects, Ledger(), Generation(0), "process", cadence, config)
    running = asyncio.ensure_future(uploader.run())
    chains = [SubtaskLogChain("operator", subtask) for subtask in range(len(batches))]
    for chain, batch in zip(chains, batches, strict=True):
        uploader.submit(chain, batch)
    states = await asyncio.gather(*(uploader.persist(chain.capture()) for chain in chains))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert [state.ranges[-1].end for state in states] == [ROWS] * len(batches)
    return store


@pytest.mark.parametrize("subtasks", [1, 200])
def test_checkpoint(benchmark: BenchmarkFixture, subtasks: int) -> None:
    """A flush of 50 rows of each subtask becomes one durable object."""
    batches = [flush(count=ROWS, seed=subtask) for subtask in range(subtasks)]
    with asyncio.Runner() as runner:
        store = benchmark(lambda: runner.run(checkpoint(batches)))
    assert len(store._names) == 1
    footer = read_footer(store._objects[store._names[0]], store._names[0])
    assert {entry.subtask for entry in footer.entries} == set(range(subtasks))


def test_pack(benchmark: BenchmarkFixture) -> None:
    """200 sealed blocks into the bytes of a segment."""
    name = object_names.segment(Generation(0), "process", 1)
    author = SegmentAuthor(Generation(0), "process", 1)
    groups = [
        BlockGroup("operator", subtask, [seal(flush(count=ROWS, seed=subtask))])
        for subtask in range(200)
    ]
    packed = benchmark(pack, author, name, groups)
    assert len(read_footer(packed.data, name).entries) == 200
