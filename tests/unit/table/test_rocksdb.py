"""Tables of RocksDB and in memory: their files, their damage, a full disk. RocksDB's own
options file sets what has no name in tidelog, and nothing that could lose rows."""

import asyncio
import errno
from pathlib import Path
from time import monotonic, sleep

import pytest
from rocksdict import ReadOptions

from tests.support.damage import damage_file, flipped_at
from tests.support.pipelines import Outside, run, word_count, words
from tests.unit.storage.conformance import names
from tests.unit.table.conformance import (
    INGESTED,
    SMALL_BUFFERS,
    TableConformance,
    lay_out,
    many_rows,
    put,
)
from tidelog import JobConfig, RocksDBConfig
from tidelog.errors import ConfigError, CorruptObjectError, InvariantError, StoreFullError
from tidelog.storage.memory import MemoryStore
from tidelog.table.memory import MemoryTableFactory
from tidelog.table.port import TableFactory
from tidelog.table.rocksdb import SNAPSHOT_NAME, RocksTable
from tidelog.table.rocksdb_factory import RocksTableFactory
from tidelog.table.rocksdb_options import MANIFEST_BYTES


@pytest.fixture
def factory() -> RocksTableFactory:
    return RocksTableFactory(SMALL_BUFFERS)


@pytest.fixture
def table(factory: RocksTableFactory, tmp_path: Path) -> RocksTable:
    return factory.create(tmp_path / "live")


class TestRocksTable(TableConformance):
    """With the factory of this module."""


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


def test_rows_that_were_deleted_anywhere_are_not_passed_again_when_they_have_left_the_memtable(
    table: RocksTable,
) -> None:
    keys = [b"%06d" % number for number in range(40_000)]
    table.write(keys, [b"value"] * len(keys))
    table.prepare_snapshot()
    gone = [key for number, key in enumerate(keys) if number % 1000]
    table.write(gone, [None] * len(gone))
    table.prepare_snapshot()
    deadline = monotonic() + 60
    while not passes_few(table):
        assert monotonic() < deadline, "no compaction in a minute"
        sleep(0.01)
    assert [key for key, _ in table.scan(b"", None)] == keys[::1000]


def passes_few(table: RocksTable) -> bool:
    """Whether a scan of all rows passes no more than 100 deleted ones from one row to the next."""
    options = ReadOptions()
    options.set_max_skippable_internal_keys(100)
    cursor = table._db.iter(options)
    cursor.seek_to_first()
    while cursor.valid():
        cursor.next()
    try:
        cursor.status()
    except Exception as error:
        assert "Too many internal keys skipped" in str(error)
        return False
    return True


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
    damage_file(directory / files[0].name, flipped_at(100))
    restored = factory.restore(directory)
    for read in (
        lambda: restored.get(keys[0]),
        lambda: restored.get_many(keys),
        lambda: list(restored.scan(b"", None)),
        lambda: list(restored.columns(1000)),
    ):
        with pytest.raises(CorruptObjectError, match=files[0].name):
            read()


def test_an_unsorted_bulk_load_is_refused_and_changes_nothing(table: RocksTable) -> None:
    keys = [b"%06d" % number for number in range(INGESTED)]
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


FILE = """
[Version]
  rocksdb_version=9.8.4
  options_file_version=1.1
[DBOptions]
  max_background_jobs=3
[CFOptions "default"]
  level0_file_num_compaction_trigger=11
  compression=kZSTD
[TableOptions/BlockBasedTable "default"]
  block_size=16384
"""


@pytest.fixture
def options_file(tmp_path: Path) -> Path:
    path = tmp_path / "rocksdb.ini"
    path.write_text(FILE)
    return path


class TestRocksWithOptionsFile(TableConformance):
    @pytest.fixture
    def factory(self, options_file: Path) -> TableFactory:
        return RocksTableFactory(RocksDBConfig(options_file=options_file))


def written_options(directory: Path) -> str:
    return max(directory.glob("OPTIONS-*")).read_text()


def test_settings_of_the_file_reach_rocksdb_and_memory_stays_tidelogs(
    tmp_path: Path, options_file: Path
) -> None:
    factory = RocksTableFactory(RocksDBConfig(options_file=options_file))
    factory.create(tmp_path / "table").close()
    options = [line.strip() for line in written_options(tmp_path / "table").splitlines()]
    for line in FILE.splitlines()[4:]:
        if "=" in line:
            assert line.strip() in options
    assert f"write_buffer_size={16 << 20}" in options
    assert f"max_manifest_file_size={64 << 10}" in options


def test_an_options_file_that_rocksdb_wrote_itself_is_taken(
    tmp_path: Path, options_file: Path
) -> None:
    RocksTableFactory().create(tmp_path / "plain").close()
    options_file.write_text(written_options(tmp_path / "plain"))
    table = RocksTableFactory(RocksDBConfig(options_file=options_file)).create(tmp_path / "table")
    table.write([b"a"], [b"1"])
    assert table.get(b"a") == b"1"
    table.close()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("enable_blob_files=true", "enable_blob_files in .*expected false; found true"),
        ("compaction_style=kCompactionStyleFIFO", "found kCompactionStyleFIFO"),
        ("prefix_extractor=rocksdb.FixedPrefix.4", "expected nullptr"),
        ("comparator=rocksdb.ReverseBytewiseComparator", "expected leveldb.BytewiseComparator"),
        ("no_such_option=1", "no_such_option"),
        ("[other]", "expected RocksDB's options file"),
    ],
)
def test_a_start_with_a_file_that_cannot_be_used_is_refused_before_it_fences(
    options_file: Path, line: str, says: str
) -> None:
    options_file.write_text(FILE.replace("compression=kZSTD", line))
    store = MemoryStore()
    config = JobConfig(rocksdb=RocksDBConfig(options_file=options_file))
    with pytest.raises(ConfigError, match=says) as caught:
        run(word_count(words(), Outside()), store, config)
    assert str(options_file) in str(caught.value)
    assert asyncio.run(names(store)) == []
