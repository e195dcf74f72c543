"""The reader: exact ranges, few requests, bounded cache."""

import asyncio

import pytest
from msgspec.structs import replace

from tests.support.jobs import store_of
from tidelog.changelog import reader as reader_module
from tidelog.changelog.block import Block, seal
from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.reader import SegmentReader
from tidelog.changelog.segment import BlockGroup, LogRange, PackedSegment, SegmentAuthor, pack
from tidelog.errors import CorruptObjectError, RestoreError
from tidelog.ids import Generation, SeqNo
from tidelog.storage.memory import MemoryStore

AUTHOR = SegmentAuthor(Generation(1), "p", 1)


class RecordingStore(MemoryStore):
    """A memory store that remembers its reads and how many ran at once."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[str, int, int | None]] = []
        self.running = 0
        self.most_running = 0

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        self.reads.append((name, start, length))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        return await super().get(name, start, length)


def batch(first: int, value: bytes = b"v") -> ChangeBatch:
    return ChangeBatch(SeqNo(first), [b"\0\1\0\1a", b"\0\1\0\1b"], [value, None])


def segment(name: str, groups: int = 3, value: bytes = b"v") -> PackedSegment:
    """Per group two blocks, holding the changes [10, 14)."""
    return pack(
        AUTHOR,
        name,
        [
            BlockGroup("op", subtask, [seal(batch(10, value)), seal(batch(12, value))])
            for subtask in range(groups)
        ],
    )


def stored(*segments: PackedSegment) -> RecordingStore:
    store = RecordingStore()
    for packed in segments:
        asyncio.run(store.put(packed.ranges[0].segment, packed.data))
    return store


def read(store: MemoryStore, *ranges: LogRange) -> list[list[Block]]:
    return asyncio.run(SegmentReader(store).read_ranges(ranges))


def test_ranges_come_back_in_the_order_they_were_asked_for() -> None:
    one, two = segment("a", value=b"1"), segment("b", value=b"2")
    wanted = [two.ranges[2], one.ranges[0], two.ranges[0], one.ranges[0]]
    answers = read(stored(one, two), *wanted)
    assert [blocks[0].changes().values[0] for blocks in answers] == [b"2", b"1", b"2", b"1"]
    assert [blocks[0].offset for blocks in answers] == [r.offset for r in wanted]


def test_neighbours_in_a_segment_share_one_request() -> None:
    packed = segment("a")
    store = stored(packed)
    read(store, *packed.ranges)
    first, last = packed.ranges[0], packed.ranges[-1]
    assert store.reads == [("a", first.offset, last.offset + last.length - first.offset)]


def test_a_request_stops_growing_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = segment("a", groups=4)
    monkeypatch.setattr(reader_module, "MAX_REQUEST_BYTES", 2 * packed.ranges[0].length)
    store = stored(packed)
    read(store, *packed.ranges)
    assert [length for _, _, length in store.reads] == [2 * packed.ranges[0].length] * 2


def test_no_more_requests_run_at_once_than_allowed() -> None:
    segments = [segment(f"s{n}") for n in range(9)]
    store = stored(*segments)
    reader = SegmentReader(store, concurrency=3)
    asyncio.run(reader.read_ranges([packed.ranges[0] for packed in segments]))
    assert store.most_running == 3


def test_a_missing_segment_says_what_to_restore_instead() -> None:
    with pytest.raises(RestoreError, match="log segment a") as caught:
        read(MemoryStore(), segment("a").ranges[0])
    assert "restore an older checkpoint" in caught.value.action


def test_every_truncation_of_a_range_is_detected() -> None:
    packed = segment("a", groups=1)
    wanted = packed.ranges[0]
    for length in range(wanted.offset + wanted.length):
        store = store_of({"a": packed.data[:length]})
        with pytest.raises(CorruptObjectError, match="truncated"):
            read(store, wanted)


WHOLE = segment("a").ranges[0]


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"first": SeqNo(9)}, "changes"),
        ({"first": SeqNo(12)}, "changes"),
        ({"end": SeqNo(15)}, "changes"),
        ({"end": SeqNo(12)}, "changes"),
        ({"length": WHOLE.length - 1}, "truncated"),
    ],
)
def test_a_range_that_is_not_that_of_its_blocks_is_refused(
    wrong: dict[str, int], match: str
) -> None:
    with pytest.raises(CorruptObjectError, match=match):
        read(stored(segment("a")), replace(WHOLE, **wrong))


def test_a_gap_between_the_blocks_of_a_range_is_refused() -> None:
    data = seal(batch(10)).data + seal(batch(14)).data
    whole = replace(WHOLE, offset=0, length=len(data), end=SeqNo(16))
    with pytest.raises(CorruptObjectError, match="expected changes from 12; found changes from 14"):
        read(store_of({"a": data}), whole)
