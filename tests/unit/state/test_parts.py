"""Parts of table files: how they are fetched together, and what is said of one that is bad."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tidelog.checkpoint.descriptor import TableObject
from tidelog.effects import InlineOffload
from tidelog.errors import CorruptObjectError, RestoreError
from tidelog.state.recovery.partial_file import PartialFile
from tidelog.state.recovery.parts import Part, in_calls, read_call
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectPart
from tidelog.table.holes import make_placeholder
from tidelog.table.rocksdb_factory import RocksTableFactory
from tidelog.table.rocksdb_options import RocksDBConfig

SIZE = 100_000
INLINE = InlineOffload(), asyncio.Lock()
CONTENT = bytes(number % 251 for number in range(SIZE))


class Requests(MemoryStore):
    """Notes which parts are asked for together."""

    def __init__(self) -> None:
        super().__init__("memory://")
        self.calls: list[list[ObjectPart]] = []
        self.late = ""
        """The object whose parts do not come in time."""

    async def get_parts(
        self, parts: Sequence[ObjectPart], patience_s: float | None = None
    ) -> Sequence[bytes | None]:
        self.calls.append(list(parts))
        contents = await super().get_parts(parts, patience_s)
        if patience_s is None:
            return contents
        return [
            None if part.name == self.late else content
            for part, content in zip(parts, contents, strict=True)
        ]


def file_of(directory: Path, name: str) -> PartialFile:
    path = directory / name
    make_placeholder(path, SIZE)
    return PartialFile(TableObject(f"{name}.sst", f"tables/{name}", SIZE, "0"), path)


async def store_of(*names: str) -> Requests:
    store = Requests()
    for name in names:
        await store.put(f"tables/{name}", CONTENT)
    return store


async def test_parts_that_lie_together_are_one_request_and_all_are_written(tmp_path: Path) -> None:
    a, b = file_of(tmp_path, "a"), file_of(tmp_path, "b")
    store = await store_of("a", "b")
    parts = [Part(b, 50_000, 10), Part(a, 60_000, 20), Part(a, 10, 5), Part(a, 2_000, 7)]
    (call,) = in_calls(parts)
    await read_call(call, store, *INLINE)
    assert store.calls == [
        [
            ObjectPart("tables/a", 10, 1_997),
            ObjectPart("tables/a", 60_000, 20),
            ObjectPart("tables/b", 50_000, 10),
        ]
    ]
    for file, offset, length in parts:
        assert offset is not None
        assert file.path.read_bytes()[offset : offset + length] == CONTENT[offset:][:length]
    assert not any(b.path.read_bytes()[:50_000])


async def test_nothing_is_asked_of_a_file_that_is_whole_nor_past_its_end(tmp_path: Path) -> None:
    a, b = file_of(tmp_path, "a"), file_of(tmp_path, "b")
    store = await store_of("a", "b")
    b.is_whole = True
    await read_call([Part(b, 0, 10)], store, *INLINE)
    assert store.calls == []
    await read_call([Part(a, SIZE - 10, 5), Part(b, 0, 10)], store, *INLINE, 1 << 20)
    assert store.calls == [[ObjectPart("tables/a", SIZE - 10, 10)]]


def test_a_call_has_the_tail_of_a_file_or_some_parts_of_data(tmp_path: Path) -> None:
    file = file_of(tmp_path, "a")
    data = [Part(file, offset, 1) for offset in range(0, SIZE, 1000)]
    tail = Part(file, None, 0)
    calls = in_calls([*reversed(data), tail])
    assert list(calls[0]) == [tail]
    assert [part for call in calls[1:] for part in call] == data
    assert len(calls) == 5


async def test_what_is_late_is_returned_to_be_asked_for_again(tmp_path: Path) -> None:
    a, b = file_of(tmp_path, "a"), file_of(tmp_path, "b")
    store = await store_of("a", "b")
    store.late = "tables/a"
    parts = [Part(a, 10, 5), Part(a, 2_000, 7), Part(a, 60_000, 20), Part(b, 50_000, 10)]
    late = await read_call(parts, store, *INLINE, patience_s=1.0)
    assert late == [Part(a, 10, 1_997), Part(a, 60_000, 20)]
    assert not any(a.path.read_bytes())
    assert b.path.read_bytes()[50_000:50_010] == CONTENT[50_000:50_010]
    assert await read_call(late, store, *INLINE) == []
    assert a.path.read_bytes()[60_000:60_020] == CONTENT[60_000:60_020]


async def test_a_tail_that_is_longer_than_was_thought_is_asked_for_as_a_whole(
    tmp_path: Path,
) -> None:
    factory = RocksTableFactory(RocksDBConfig())
    table = factory.create(tmp_path / "table")
    table.load([b"%06d" % number for number in range(5_000)], [bytes(100)] * 5_000)
    table.close()
    (path,) = (tmp_path / "table").glob("*.sst")
    content = path.read_bytes()
    file = PartialFile(TableObject("a", "tables/a", len(content), "0"), tmp_path / "a")
    make_placeholder(file.path, len(content))
    store = Requests()
    await store.put("tables/a", content)
    (left,) = await read_call([Part(file, None, 500)], store, *INLINE)
    assert left.offset is None
    assert not any(file.path.read_bytes())
    assert await read_call([left], store, *INLINE) == []
    start = len(content) - left.length
    assert file.path.read_bytes()[start:] == content[start:]
    assert not any(file.path.read_bytes()[:start])
    # Another file of the table is asked for so much, and a little more.
    other = PartialFile(TableObject("b", "tables/b", 4 * len(content), "0"), tmp_path / "b")
    assert left.length * 4 < other.tail_guess(file) < left.length * 5


async def test_the_object_that_is_missing_or_short_is_named(tmp_path: Path) -> None:
    files = [file_of(tmp_path, name) for name in ("a", "lost")]
    store = await store_of("a")
    with pytest.raises(RestoreError, match="tables/lost"):
        await read_call([Part(file, 0, 10) for file in files], store, *INLINE)
    await store.put("tables/lost", CONTENT[:5])
    with pytest.raises(CorruptObjectError, match="tables/lost"):
        await read_call([Part(file, 0, 10) for file in files], store, *INLINE)
