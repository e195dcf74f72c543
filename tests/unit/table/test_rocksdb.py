""""""

import errno
from pathlib import Path

import pytest

from table.conformance import SMALL_BUFFERS, TableConformance, lay_out, many_rows, put
from tidelog.errors import CorruptObjectError, InvariantError, StoreFullError
from tidelog.table.memory import MemoryTableFactory
from tidelog.table.rocksdb import RocksTable, RocksTableFactory
from tidelog.table.rocksdb_options import MANIFEST_BYTES
from tidelog.table.rocksdb_snapshot import SNAPSHOT_NAME


@pytest.fixture
def factory() -> RocksTableFactory:
    return RocksTableFactory(SMALL_BUFFERS)


@pytest.fixture
def table(factory: RocksTableFactory, tmp_path: Path) -> RocksTable:
    return factory.create(tmp_path / "live")


class TestRocksTable(TableConformance):
    @pytest.fixture
    def factory(self) -> RocksTableFactory:
        return RocksTableFactory(SMALL_BUFFERS)


def test_a_snapshot_is_sst_files_and_one_small_file(table: RocksTable, tmp_path: Path) -> None:
    put(table, many_rows(1))
    *shared, private = table.freeze(tmp_path / "snapshot")()
    assert all(file.shared and file.name.endswith(".sst") for file in shared)
    assert (private.name, private.shared) == (SNAPSHOT_NAME, False)
    assert private.size < 4096


def test_the_small_file_stays_small_however_often_the_table_was_flushed(
    table: RocksTable, tmp_path: Path
) -> None:
    # What the MANIFEST says of a file names its first and last key.
    for number in range(150):
        put(table, {b"key" * 500: b"value %d" % number})
        table.prepare_snapshot()
    *_, private = table.freeze(tmp_path / "snapshot")()
    assert private.size < 2 * MANIFEST_BYTES


def test_a_full_disk_is_reported_as_such(table: RocksTable, tmp_path: Path) -> None:
    put(table, many_rows(1))
    for number in range(8, 20):
        (tmp_path / "live" / f"{number:06d}.sst").symlink_to("/dev/full")
    with pytest.raises(StoreFullError, match="free disk space"):
        table.prepare_snapshot()


def test_a_damaged_block_fails_every_way_to_read_it(
    table: RocksTable, factory: RocksTableFactory, tmp_path: Path
) -> None:
    keys = sorted(many_rows(1))
    put(table, many_rows(1))
    files = table.freeze(tmp_path / "snapshot")()
    directory = lay_out(files, tmp_path / "restored")
    data = bytearray((directory / files[0].name).read_bytes())
    data[100] ^= 1
    (directory / files[0].name).write_bytes(data)
    restored = factory.restore(directory)
    with pytest.raises(CorruptObjectError, match=files[0].name):
        restored.get(keys[0])
    with pytest.raises(CorruptObjectError, match=files[0].name):
        restored.get_many(keys)
    with pytest.raises(CorruptObjectError, match=files[0].name):
        list(restored.scan(b"", None))
    with pytest.raises(CorruptObjectError, match=files[0].name):
        list(restored.columns(1000))


def test_an_unsorted_bulk_load_is_refused_and_changes_nothing(table: RocksTable) -> None:
    keys = [b"%06d" % number for number in range(100_000)]
    with pytest.raises(InvariantError, match="ascending"):
        table.load(keys[::-1], keys)
    assert list(table.scan(b"", None)) == []


class TestMemoryTable(TableConformance):
    @pytest.fixture
    def factory(self) -> MemoryTableFactory:
        return MemoryTableFactory()


def test_a_full_disk_is_reported_by_a_table_in_memory_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(path: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    table = MemoryTableFactory().create(tmp_path / "live")
    put(table, many_rows(1))
    monkeypatch.setattr(Path, "write_bytes", no_room)
    with pytest.raises(StoreFullError, match="free disk space"):
        table.freeze(tmp_path / "snapshot")()


def test_equal_content_gives_equal_files_whatever_its_history(tmp_path: Path) -> None:
    content = many_rows(1)
    straight = MemoryTableFactory().create(tmp_path / "straight")
    put(straight, content)
    winding = MemoryTableFactory().create(tmp_path / "winding")
    put(winding, many_rows(2))
    winding.write(sorted(many_rows(2)), [None] * len(many_rows(2)))
    put(winding, content)
    first = straight.freeze(tmp_path / "1")()
    second = winding.freeze(tmp_path / "2")()
    assert [f.name for f in first] == [f.name for f in second]
    assert [f.path.read_bytes() for f in first] == [f.path.read_bytes() for f in second]
