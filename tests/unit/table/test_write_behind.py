"""Rows that wait in front of a table are read as if they were in it, and get there in time."""

from collections.abc import Sequence
from errno import ENOSPC
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from table.conformance import SMALL_BUFFERS, TableConformance, lay_out, rows
from tidelog.errors import StoreFullError
from tidelog.table.failures import translate
from tidelog.table.memory import MemoryTable, MemoryTableFactory
from tidelog.table.port import Table
from tidelog.table.rocksdb import RocksTableFactory
from tidelog.table.write_behind import WriteBehind

KEYS = [bytes([number]) for number in range(12)]
BATCHES = st.dictionaries(st.sampled_from(KEYS), st.none() | st.binary(max_size=4), max_size=8)
STEPS = st.one_of(
    st.tuples(st.just("put_off"), BATCHES),
    st.tuples(st.just("write"), BATCHES),
    st.tuples(st.just("settle"), st.integers(1, 6)),
    st.tuples(st.just("scan"), st.none()),
    st.tuples(st.just("load"), BATCHES),
)


def put_off(table: WriteBehind, content: dict[bytes, bytes]) -> None:
    table.put_off(list(content), list(content.values()))


class PutsOff(WriteBehind):
    """Puts off whatever it can."""

    def write(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        self.put_off(keys, values)


class WriteBehindFactory(RocksTableFactory):
    """RocksDB, every table of it behind rows that wait."""

    def create(self, directory: Path) -> Table:  # type: ignore[override]
        return PutsOff(super().create(directory))

    def restore(self, directory: Path) -> Table:  # type: ignore[override]
        return PutsOff(super().restore(directory))


class TestWriteBehind(TableConformance):
    @pytest.fixture
    def factory(self) -> WriteBehindFactory:
        return WriteBehindFactory(SMALL_BUFFERS)


@given(st.lists(STEPS, max_size=30))
def test_whatever_waits_a_read_finds_the_newest_rows(steps: list[tuple[str, object]]) -> None:
    below, model = MemoryTable(), dict[bytes, bytes]()
    table = WriteBehind(below)
    for step, given_ in steps:
        match step, given_:
            case (("write" | "load"), dict() as batch):
                call = table.write if step == "write" else table.load
                call(list(batch), list(batch.values()))
                model.update(batch)
                model = {key: value for key, value in model.items() if value is not None}
            case "settle", int() as most:
                assert table.settle(most) == (table.waiting > 0)
            case _:
                assert rows(table) == model
                assert table.waiting == 0
        assert table.get_many(KEYS) == [model.get(key) for key in KEYS]
        assert [table.get(key) for key in KEYS] == [model.get(key) for key in KEYS]


def test_a_row_that_changes_again_and_again_is_written_once() -> None:
    class Counting(MemoryTable):
        written = 0

        def write(self, keys: object, values: object) -> None:
            self.written += len(keys)  # type: ignore[arg-type]
            super().write(keys, values)  # type: ignore[arg-type]

    below = Counting()
    table = WriteBehind(below)
    for number in range(100):
        put_off(table, {key: bytes([number]) for key in KEYS})
    assert (below.written, table.waiting) == (0, len(KEYS))
    while table.settle(5):
        pass
    assert below.written == len(KEYS)
    assert rows(below) == {key: bytes([99]) for key in KEYS}


def test_rows_go_on_waiting_when_the_table_refuses_them() -> None:
    class Full(MemoryTable):
        full = True

        def write(self, keys: object, values: object) -> None:
            if self.full:
                raise translate(OSError(ENOSPC, "No space left on device"), Path("table"))
            super().write(keys, values)  # type: ignore[arg-type]

    below = Full()
    table = WriteBehind(below)
    put_off(table, {b"a": b"1", b"b": b"2"})
    with pytest.raises(StoreFullError):
        table.settle()
    assert table.get_many([b"a", b"b"]) == [b"1", b"2"]
    below.full = False
    assert rows(table) == {b"a": b"1", b"b": b"2"}


def test_a_snapshot_has_the_rows_that_waited(tmp_path: Path) -> None:
    table = WriteBehind(MemoryTable())
    put_off(table, {b"a": b"1"})
    files = lay_out(table.snapshot(tmp_path / "snapshot"), tmp_path / "laid out")
    assert rows(MemoryTableFactory().restore(files)) == {b"a": b"1"}


def test_with_through_nothing_waits() -> None:
    below = MemoryTable()
    table = WriteBehind(below)
    put_off(table, {b"a": b"1"})
    table.through = True
    put_off(table, {b"a": b"2"})
    assert (rows(below), table.waiting) == ({b"a": b"2"}, 0)
