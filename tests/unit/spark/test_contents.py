"""Changelogs out of segments: whole, checked, each segment fetched once; pieces put together."""

import asyncio
from dataclasses import replace

import pytest

from tests.unit.spark.synthetic import Synthetic
from tidelog.concurrency import gather_bounded
from tidelog.errors import CorruptObjectError, RestoreError
from tidelog.spark.checkpoint.contents import ChangelogReader
from tidelog.spark.checkpoint.locate import assembled, read_footers
from tidelog.spark.format.index import IndexEntry
from tidelog.spark.format.names import ChangelogName
from tidelog.spark.format.segment import FooterEntry
from tidelog.storage.memory import MemoryStore

NAME = ChangelogName(0, 1, "default", 7, "id")


class CountingStore(MemoryStore):
    """Remembers what was read."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__()
        self.reads: list[str] = []
        for name, data in objects.items():
            self._store(name, data)

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        self.reads.append(name)
        await asyncio.sleep(0)
        return await super().get(name, start, length)


def entries(synthetic: Synthetic) -> list[IndexEntry]:
    return [entry for document in synthetic.documents.values() for entry in document.entries]


def read_all(store: CountingStore, wanted: list[IndexEntry], cache_bytes: int) -> list[bytes]:
    async def work() -> list[bytes]:
        reader = ChangelogReader(store, cache_bytes)
        try:
            return list((await gather_bounded(wanted, reader.read)).values())
        finally:
            await reader.close()

    return asyncio.run(work())


def test_every_changelog_is_read_as_it_was_and_every_segment_once() -> None:
    synthetic = Synthetic(partitions=6, executors=2, piece_bytes=25).virtual(4)
    store = CountingStore(synthetic.objects)
    wanted = entries(synthetic)
    assert read_all(store, wanted, 1 << 20) == [synthetic.model[e.name] for e in wanted]
    assert sorted(store.reads) == synthetic.segments()


def test_a_small_cache_reads_again_and_gives_the_same() -> None:
    synthetic = Synthetic(partitions=40, executors=2).virtual(3)
    store = CountingStore(synthetic.objects)
    wanted = sorted(entries(synthetic), key=lambda entry: entry.name.partition)
    assert read_all(store, wanted, 0) == [synthetic.model[e.name] for e in wanted]
    assert len(store.reads) > len(synthetic.segments())


def test_a_missing_segment_names_the_changelog() -> None:
    synthetic = Synthetic().virtual(1)
    entry = entries(synthetic)[0]
    objects = {n: d for n, d in synthetic.objects.items() if entry.pieces[0].segment not in n}
    with pytest.raises(RestoreError, match=entry.pieces[0].segment) as error:
        read_all(CountingStore(objects), [entry], 1 << 20)
    assert entry.name.path in str(error.value)


def test_a_length_that_differs_from_the_index_is_damage() -> None:
    synthetic = Synthetic().virtual(1)
    entry = entries(synthetic)[0]
    with pytest.raises(CorruptObjectError, match="as its index entry says"):
        read_all(CountingStore(synthetic.objects), [replace(entry, bytes=entry.bytes + 1)], 1 << 20)


def test_an_entry_without_its_last_piece_is_damage() -> None:
    synthetic = Synthetic(piece_bytes=25).virtual(1)
    entry = entries(synthetic)[0]
    with pytest.raises(CorruptObjectError):
        read_all(
            CountingStore(synthetic.objects), [replace(entry, pieces=entry.pieces[:-1])], 1 << 20
        )


def piece(number: int, pieces: int = 0) -> FooterEntry:
    return FooterEntry(NAME, 44 + 100 * number, 100, number, pieces)


def test_pieces_make_an_entry_in_any_order_and_over_several_segments() -> None:
    found = [("b", piece(2, 3)), ("a", piece(0)), ("b", piece(1))]
    entry = assembled(NAME, found)
    assert entry is not None
    assert [place.segment for place in entry.pieces] == ["a", "b", "b"]
    assert [place.offset for place in entry.pieces] == [44, 144, 244]


@pytest.mark.parametrize(
    "found",
    [
        [("a", piece(0))],
        [("a", piece(0)), ("a", piece(2, 3))],
        [("a", piece(1, 2))],
    ],
)
def test_an_incomplete_changelog_makes_none(found: list[tuple[str, FooterEntry]]) -> None:
    assert assembled(NAME, found) is None


def test_a_piece_that_is_there_twice_counts_once() -> None:
    entry = assembled(NAME, [("a", piece(0, 1)), ("b", piece(0, 1))])
    assert entry is not None and len(entry.pieces) == 1


def test_a_segment_that_disappears_is_passed_over_and_a_damaged_one_is_named() -> None:
    synthetic = Synthetic().virtual(2)
    by_counter = sorted(synthetic.segments(), key=lambda name: name.rpartition("-")[2])
    names = [name.rpartition("/")[2] for name in by_counter]
    sizes = {name: len(synthetic.objects[f"_tidelog/segments/{name}"]) for name in names}
    objects = dict(synthetic.objects)
    del objects[f"_tidelog/segments/{names[0]}"]
    objects[f"_tidelog/segments/{names[1]}"] = b"x" * sizes[names[1]]
    footers = asyncio.run(read_footers(CountingStore(objects), sizes))
    assert list(footers.damaged) == [f"_tidelog/segments/{names[1]}"]
    assert {name.version for name in footers.entries} == {2}
