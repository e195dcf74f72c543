"""The log is cut so that completed checkpoints tell the history of changes without a gap.

Several readers of one log: what is held for the slower ones stays within a limit.
"""

import asyncio
from random import Random

import pytest

from tests.support.clock import VirtualClock, in_virtual_time
from tidelog.changelog.block import SealedBlock, seal
from tidelog.changelog.cadence import Cadence
from tidelog.changelog.chain import SubtaskLogChain
from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.reader import SegmentReader
from tidelog.changelog.segment import BlockGroup, LogRange, SegmentAuthor, pack
from tidelog.changelog.uploader import Uploader
from tidelog.checkpoint.manifest import MaterializationRef
from tidelog.effects import InlineOffload
from tidelog.ids import Generation, MaterializationId, SeqNo
from tidelog.state.log import SubtaskLog
from tidelog.state.recovery.progress import RestoreProgress
from tidelog.state.recovery.shared_log import SharedLog
from tidelog.storage.ledger import Ledger
from tidelog.storage.memory import MemoryStore


@pytest.fixture
def log() -> SubtaskLog:
    """Six flushes of one change each."""
    clock = VirtualClock()
    effects = in_virtual_time(1, clock)
    parts = (MemoryStore(), effects, Ledger(), Generation(0), "process", Cadence(clock))
    log = SubtaskLog(Uploader(*parts), SubtaskLogChain("count", 0))
    write(log, 0, 6)
    return log


def write(log: SubtaskLog, first: int, end: int) -> None:
    for number in range(first, end):
        log.submit(ChangeBatch(SeqNo(number), [b"key"], [b"value"]))


def table(upto: int) -> MaterializationRef:
    return MaterializationRef(MaterializationId(upto), f"descriptor-{upto}", 1, SeqNo(upto), 1)


def held(log: SubtaskLog) -> list[int]:
    """The changes that the next checkpoint would name."""
    _, chain = log.capture()
    return [piece.first for piece in chain.pieces]


def test_what_no_completed_checkpoint_has_stays_when_the_table_covers_it(log: SubtaskLog) -> None:
    log.completed(SeqNo(4))
    assert held(log) == [0, 1, 2, 3, 4, 5], "nothing is materialized"
    log.materialized(table(6))
    assert held(log) == [4, 5], "the next checkpoint goes on where the last one ended"


def test_a_completed_checkpoint_lets_go_what_the_table_covers(log: SubtaskLog) -> None:
    log.materialized(table(5))
    assert held(log) == [0, 1, 2, 3, 4, 5]
    log.completed(SeqNo(6))
    assert held(log) == [5]


def test_without_a_checkpoint_the_log_is_cut_at_the_table_before(log: SubtaskLog) -> None:
    log.materialized(table(4))
    write(log, 6, 9)
    log.materialized(table(8))
    assert held(log) == [4, 5, 6, 7, 8], "two intervals are the most"
    write(log, 9, 12)
    log.materialized(table(12))
    assert held(log) == [8, 9, 10, 11]


def test_a_checkpoint_that_completes_late_brings_nothing_back(log: SubtaskLog) -> None:
    log.completed(SeqNo(6))
    log.materialized(table(6))
    log.completed(SeqNo(3))
    assert held(log) == [] and log.checkpointed == 6


SEGMENTS = [f"segments/{number}.seg" for number in range(6)]


def _block(number: int) -> SealedBlock:
    key = number.to_bytes(6, "big")
    return seal(ChangeBatch(SeqNo(number), [key], [Random(number).randbytes(500)]))


async def test_without_room_readers_fetch_for_themselves_and_nothing_stays() -> None:
    """Six segments with two blocks of each of two subtasks."""
    store = MemoryStore("memory://log")
    ranges: list[list[LogRange]] = [[], []]
    for number, name in enumerate(SEGMENTS):
        author = SegmentAuthor(Generation(1), "process", number)
        blocks = [_block(2 * number), _block(2 * number + 1)]
        packed = pack(author, name, [BlockGroup("op", task, blocks) for task in range(2)])
        await store.put(name, packed.data)
        for each, part in zip(ranges, packed.ranges, strict=True):
            each.append(part)
    progress = RestoreProgress.of(VirtualClock(auto=False), [])
    log = SharedLog(SegmentReader(store), InlineOffload(), progress, limit_bytes=0)

    async def replay(task: int) -> list[int]:
        """The numbers of the changes of a subtask, a segment at a time."""
        seen = []
        for wanted in ranges[task]:
            for blocks in await log.read([wanted]):
                seen += [changes.first for changes in await log.take(blocks)]
                await asyncio.sleep(0)
        return seen

    for each in [*ranges] * 3:
        log.expect(each)
    assert await replay(0) == list(range(12))
    replays = [replay(task) for task in (0, 0, 1, 1, 1)]
    assert await asyncio.gather(*replays) == [list(range(12))] * 5
    assert log._held_bytes == 0 and log._entries == {}
