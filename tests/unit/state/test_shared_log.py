"""Several readers of one log: fetched and decoded once, held within a limit, given up alone."""

import asyncio
from random import Random

import pytest

from tests.support.clock import VirtualClock
from tests.support.faults import Failure, SteerableStore
from tidelog.changelog.block import Block, seal
from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.reader import SegmentReader
from tidelog.changelog.segment import BlockGroup, LogRange, SegmentAuthor, pack
from tidelog.effects import InlineOffload
from tidelog.errors import StorageError
from tidelog.ids import Generation, SeqNo
from tidelog.state.restore.progress import RestoreProgress
from tidelog.state.restore.shared_log import LoggedBlock, SharedLog
from tidelog.storage.memory import MemoryStore

SEGMENTS = [f"segments/{number}.seg" for number in range(6)]


class Rig:
    """Six segments with two blocks of each of two subtasks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, limit_bytes: int) -> None:
        self.memory = MemoryStore("memory://log")
        self.store = SteerableStore(self.memory)
        self.ranges: list[list[LogRange]] = [[], []]
        self.decoded = 0
        for number, name in enumerate(SEGMENTS):
            author = SegmentAuthor(Generation(1), "process", number)
            groups = [BlockGroup("op", task, _blocks(2 * number)) for task in range(2)]
            packed = pack(author, name, groups)
            self.memory._objects[name] = packed.data
            for each, part in zip(self.ranges, packed.ranges, strict=True):
                each.append(part)
        progress = RestoreProgress.of(VirtualClock(auto=False), [])
        reader = SegmentReader(self.store, 0)
        self.log = SharedLog(reader, InlineOffload(), progress, limit_bytes)
        original = Block.changes

        def counted(block: Block) -> ChangeBatch:
            self.decoded += 1
            return original(block)

        monkeypatch.setattr(Block, "changes", counted)

    async def replay(self, task: int) -> list[int]:
        """The numbers of the changes of a subtask, a segment at a time."""
        seen = []
        for wanted in self.ranges[task]:
            for blocks in await self.log.read([wanted]):
                seen += [changes.first for changes in await self.log.take(blocks)]
                await asyncio.sleep(0)
        return seen

    def expect(self, readers: int) -> None:
        for _ in range(readers):
            for ranges in self.ranges:
                self.log.expect(ranges)

    @property
    def gets(self) -> int:
        return sum(1 for operation, _ in self.store.calls if operation == "get")


def _blocks(first: int) -> list[object]:
    return [_block(first), _block(first + 1)]


def _block(number: int) -> object:
    key = number.to_bytes(6, "big")
    return seal(ChangeBatch(SeqNo(number), [key], [Random(number).randbytes(500)]))


async def test_four_readers_of_both_subtasks_cost_one_request_per_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(monkeypatch, 1 << 20)
    rig.expect(4)
    replays = [rig.replay(task) for task in (0, 1) for _ in range(4)]
    assert await asyncio.gather(*replays) == [list(range(12))] * 8
    assert rig.gets == len(SEGMENTS)
    assert rig.decoded == 2 * 12
    assert rig.log._held_bytes == 0 and rig.log._entries == {}


async def test_without_room_readers_fetch_for_themselves_and_nothing_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(monkeypatch, 0)
    rig.expect(3)
    assert await rig.replay(0) == list(range(12))
    replays = [rig.replay(task) for task in (0, 0, 1, 1, 1)]
    assert await asyncio.gather(*replays) == [list(range(12))] * 5
    assert rig.log._held_bytes == 0 and rig.log._entries == {}


async def test_a_reader_that_is_behind_makes_no_other_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, 2500)
    rig.expect(2)
    late: list[list[LoggedBlock]] = await rig.log.read(rig.ranges[0][:1])
    assert await rig.replay(0) == list(range(12))
    assert rig.log._held_bytes <= 2500 + rig.ranges[0][0].length
    assert [changes.first for changes in await rig.log.take(late[0])] == [0, 1]


async def test_a_fetch_that_fails_fails_for_all_who_wait_and_one_given_up_for_none_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(monkeypatch, 1 << 20)
    rig.expect(2)
    giving_up = asyncio.ensure_future(rig.replay(0))
    staying = asyncio.ensure_future(rig.replay(0))
    await asyncio.sleep(0)
    giving_up.cancel()
    assert await staying == list(range(12))
    rig.store.fail(Failure("get", SEGMENTS[0], nth=1))
    waiting = [rig.replay(1), rig.replay(1)]
    rig.log._entries.clear()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [isinstance(each, StorageError) for each in found] == [True, True]
    await rig.log.close()
