"""Parts of table files: how they are fetched together, and what is said of one that is bad."""

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

SIZE = 100_000
CONTENT = bytes(number % 251 for number in range(SIZE))


class Requests(MemoryStore):
    """Notes which parts are asked for together."""

    def __init__(self) -> None:
        super().__init__("memory://")
        self.calls: list[list[ObjectPart]] = []

    async def get_parts(self, parts: Sequence[ObjectPart]) -> Sequence[bytes]:
        self.calls.append(list(parts))
        return await super().get_parts(parts)


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
    await read_call(call, store, InlineOffload())
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
    await read_call([Part(b, 0, 10)], store, InlineOffload())
    assert store.calls == []
    await read_call([Part(a, SIZE - 10, 5), Part(b, 0, 10)], store, InlineOffload(), 1 << 20)
    assert store.calls == [[ObjectPart("tables/a", SIZE - 10, 10)]]


def test_a_call_has_the_tail_of_a_file_or_some_parts_of_data(tmp_path: Path) -> None:
    file = file_of(tmp_path, "a")
    data = [Part(file, offset, 1) for offset in range(0, SIZE, 1000)]
    tail = Part(file, None, 0)
    calls = in_calls([*reversed(data), tail])
    assert list(calls[0]) == [tail]
    assert [part for call in calls[1:] for part in call] == data
    assert len(calls) == 5


async def test_the_object_that_is_missing_or_short_is_named(tmp_path: Path) -> None:
    files = [file_of(tmp_path, name) for name in ("a", "lost")]
    store = await store_of("a")
    with pytest.raises(RestoreError, match="tables/lost"):
        await read_call([Part(file, 0, 10) for file in files], store, InlineOffload())
    await store.put("tables/lost", CONTENT[:5])
    with pytest.raises(CorruptObjectError, match="tables/lost"):
        await read_call([Part(file, 0, 10) for file in files], store, InlineOffload())
