"""A table whose files are holes answers as one that is whole; what is damaged is never a value."""

import os
import random
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.property.profiles import looking
from tests.support.depth import more_in_depth
from tests.unit.table.conformance import (
    SMALL_BUFFERS,
    TableConformance,
    lay_out,
    many_rows,
    put,
    rows,
)
from tests.unit.table.served import LocalHoles, ServingFactory
from tests.unit.table.test_model import TableMachine
from tidelog.errors import CorruptObjectError, StoreFullError
from tidelog.table.holes import ANYWHERE, Hole, check_room, hole_of, make_placeholder
from tidelog.table.hydrating import LEVEL0_GROWTH, HydratingTable
from tidelog.table.port import Freeze, TableFile
from tidelog.table.rocksdb import RocksTable
from tidelog.table.rocksdb_factory import RocksTableFactory
from tidelog.table.rocksdict_options import table_options
from tidelog.table.sst_tail import tail_start


@pytest.fixture(params=[True, False], ids=["all tails", "no tail"])
def factory(request: pytest.FixtureRequest) -> ServingFactory:
    return ServingFactory(SMALL_BUFFERS, has_tails=request.param)


@pytest.fixture(autouse=True)
def whole_before_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """No snapshot is uploaded with holes: its caller waits until the table is whole."""

    def freeze(table: HydratingTable, directory: Path) -> Freeze:
        cast(LocalHoles, table._holes).fill_all()
        return RocksTable.freeze(table, directory)

    monkeypatch.setattr(HydratingTable, "freeze", freeze)


class TestServedTables(TableConformance):
    """With the factory of this module."""


@pytest.mark.parametrize("has_tails", [True, False])
def test_a_table_of_holes_is_a_dict_with_snapshots(
    has_tails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.table.rocksdb._INGEST_ROWS", 10)

    class Machine(TableMachine):
        factory = ServingFactory(SMALL_BUFFERS, has_tails=has_tails)

    run_state_machine_as_test(Machine, settings=looking(15, 30))


@pytest.fixture
def files(tmp_path: Path) -> list[TableFile]:
    """Those of a table with rows in several levels."""
    table = RocksTableFactory(SMALL_BUFFERS).create(tmp_path / "made")
    put(table, many_rows(1, 20_000))
    table.prepare_snapshot()
    put(table, many_rows(2, 500))
    return table.freeze(tmp_path / "frozen")()


def content() -> dict[bytes, bytes]:
    return many_rows(1, 20_000) | many_rows(2, 500)


def test_the_error_of_a_missing_block_says_where_it_is(
    files: list[TableFile], tmp_path: Path
) -> None:
    """RocksDB's own text: with another one, tables could not be served before they are whole."""
    factory = ServingFactory(SMALL_BUFFERS, has_tails=True)
    table = factory.restore(lay_out(files, tmp_path / "served"))
    key = min(content())
    with pytest.raises(Exception, match=r"^Corruption: block checksum mismatch: ") as raised:
        table._db.get(key)
    hole = hole_of(raised.value)
    assert hole is not None
    assert hole.offset is not None
    data = (factory.holes.source / hole.file).read_bytes()
    start = tail_start(data, len(data))
    assert start is not None
    assert hole.offset + hole.length <= start
    factory.holes.fill([hole], 0)
    assert table.get(key) == content()[key]


def test_the_error_of_a_missing_footer_names_the_file(
    files: list[TableFile], tmp_path: Path
) -> None:
    directory, other = tmp_path / "served", tmp_path / "other"
    factory = ServingFactory(SMALL_BUFFERS)
    factory.restore(lay_out(files, directory)).close()
    shutil.copytree(directory, other)
    path = max(other.glob("*.sst"))
    path.write_bytes(bytes(path.stat().st_size))
    options = table_options(factory._options, factory._cache, factory._buffers)
    with pytest.raises(Exception, match=r"^Corruption: Bad table magic number: ") as raised:
        RocksTable(other, options)
    assert hole_of(raised.value) == Hole(path.name, None, 0)


def test_any_other_error_tells_of_no_hole() -> None:
    assert hole_of(Exception("IO error: No space left on device: 000004.sst")) is None
    assert hole_of(Exception("DB instance already closed")) is None


def test_a_placeholder_has_its_room_on_the_disk(tmp_path: Path) -> None:
    """So that a disk which others fill refuses nothing later, and none in memory kills readers."""
    path = tmp_path / "1.sst"
    make_placeholder(path, 1 << 20)
    assert path.stat().st_blocks * 512 >= path.stat().st_size == 1 << 20
    make_placeholder(tmp_path / "2.sst", 0)
    assert (tmp_path / "2.sst").stat().st_size == 0


def test_room_that_placeholders_have_yet_to_take_is_not_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the file system cannot give a file its room before it is written."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=3 << 20))
    placeholders = [tmp_path / "1.sst", tmp_path / "2.sst", tmp_path / "gone.sst"]
    for path in placeholders[:2]:
        path.touch()
        os.truncate(path, 1 << 20)
    check_room(tmp_path, 1 << 19, placeholders)
    with pytest.raises(StoreFullError, match=f"{1 << 20} bytes free"):
        check_room(tmp_path, 1 << 20, placeholders)
    make_placeholder(tmp_path / "reserved.sst", 1 << 20)
    check_room(tmp_path, 1 << 19, [*placeholders, tmp_path / "reserved.sst"])


def test_a_hole_in_other_words_may_be_anywhere() -> None:
    other = "Corruption: truncated block read from 000004.sst offset 3"
    for text in (other, "bad block contents (checksum)"):
        assert hole_of(Exception(text)) is ANYWHERE


@pytest.fixture
def other_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """RocksDB speaks of holes as no release of tidelog knows."""
    never = re.compile("(?!)")
    monkeypatch.setattr("tidelog.table.holes._BLOCK", never)
    monkeypatch.setattr("tidelog.table.holes._FOOTER", never)


@pytest.mark.usefixtures("other_words")
@pytest.mark.parametrize(
    "read",
    [
        lambda table, key: table.get(key),
        lambda table, key: table.get_many([b"no such key", key])[1],
        lambda table, key: dict(table.scan(key, key + b"\0"))[key],
    ],
)
def test_a_read_of_a_hole_in_other_words_waits_for_the_whole_table(
    factory: ServingFactory,
    files: list[TableFile],
    tmp_path: Path,
    read: Callable[[HydratingTable, bytes], bytes],
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = factory.restore(lay_out(files, tmp_path / "served"))
    for key in random.Random(1).sample(sorted(content()), 50):
        assert read(table, key) == content()[key]
    names = {file.name for file in files if file.shared}
    assert factory.holes.whole == names
    assert "words that this release does not know" in caplog.text
    assert "Corruption: " in caplog.text


@pytest.mark.usefixtures("other_words")
def test_damage_in_other_words_is_an_error_when_the_table_is_whole(
    files: list[TableFile], tmp_path: Path
) -> None:
    factory = ServingFactory(SMALL_BUFFERS, has_tails=True)
    directory = lay_out(files, tmp_path / "served")
    path = max(directory.glob("*.sst"))
    data = path.read_bytes()
    path.write_bytes(bytes(200) + data[200:])
    table = factory.restore(directory)
    with pytest.raises(CorruptObjectError, match="checksum"):
        rows(table)
    table.whole()
    with pytest.raises(CorruptObjectError, match="checksum"):
        table.gaps(sorted(content()))


def test_bytes_without_a_footer_have_no_tail() -> None:
    assert tail_start(b"", 0) is None
    assert tail_start(bytes(4096), 1 << 20) is None


def test_a_tail_begins_after_the_last_block_of_data(files: list[TableFile]) -> None:
    for file in files:
        if file.shared:
            data = file.path.read_bytes()
            start = tail_start(data, len(data))
            assert start is not None
            assert 0 < start < len(data)
            # What is given may be all of the file, or no more than its end.
            assert tail_start(data[start:], len(data)) == start


def test_a_scan_of_holes_fetches_ahead(files: list[TableFile], tmp_path: Path) -> None:
    factory = ServingFactory(SMALL_BUFFERS, has_tails=True)
    table = factory.restore(lay_out(files, tmp_path / "served"))
    assert rows(table) == content()
    # Files are smaller than what is fetched ahead, and their blocks are many.
    assert len(factory.holes.filled) <= 2 * sum(file.shared for file in files)


@pytest.mark.parametrize("seed", range(more_in_depth(6, 60)))
def test_no_flipped_bit_of_a_file_is_ever_a_wrong_value(
    files: list[TableFile], tmp_path: Path, seed: int
) -> None:
    rng, expected = random.Random(seed), content()
    directory = lay_out(files, tmp_path / "damaged")
    path = directory / rng.choice([file for file in files if file.shared]).name
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    factory = ServingFactory(SMALL_BUFFERS)
    with suppress(CorruptObjectError):
        table = factory.restore(directory)
        for key in rng.sample(sorted(expected), 300):
            with suppress(CorruptObjectError):
                assert table.get(key) == expected[key]
        for start in range(0, 3000, 300):
            keys = sorted(expected)[start : start + 300]
            with suppress(CorruptObjectError):
                assert table.get_many(keys) == [expected[key] for key in keys]
        with suppress(CorruptObjectError):
            assert rows(table) == expected


def test_what_is_whole_is_compacted_again(files: list[TableFile], tmp_path: Path) -> None:
    factory = ServingFactory(SMALL_BUFFERS, has_tails=True)
    table = factory.restore(lay_out(files, tmp_path / "served"))
    new = {b"key-%05d" % number: b"new" for number in range(12)}

    def flushed_files() -> int:
        return sum(file["level"] == 0 for file in table._db.live_files())

    for key, value in new.items():
        put(table, {key: value})
        table.prepare_snapshot()
    assert flushed_files() >= len(new)
    factory.holes.fill_all()
    table.whole()
    for _ in range(1000):
        if flushed_files() < len(new):
            break
        sleep(0.01)
    assert flushed_files() < len(new)
    assert rows(table) == content() | new


def test_a_table_that_is_not_whole_stalls_its_writers_and_then_rocksdb_does_not(
    files: list[TableFile], tmp_path: Path
) -> None:
    factory = ServingFactory(SMALL_BUFFERS, has_tails=True)
    table = factory.restore(lay_out(files, tmp_path / "served"))
    level0_files = SMALL_BUFFERS.level0_files
    count = 0
    while not table.is_stalled():
        put(table, {b"key-%05d" % count: b"new"})
        table.prepare_snapshot()
        count += 1
    assert count == LEVEL0_GROWTH * level0_files
    # Some are on their way when writers notice it.
    for number in range(count, 2 * count):
        put(table, {b"key-%05d" % number: b"new"})
        table.prepare_snapshot()
    factory.holes.fill_all()
    table.whole()
    assert not table.is_stalled()
    # With the usual numbers RocksDB would let no write pass before it has compacted these.
    assert option(table, "level0_stop_writes_trigger") > 2 * count + level0_files
    assert table._db.property_int_value("rocksdb.is-write-stopped") == 0
    put(table, {b"key": b"newest"})
    for _ in range(1000):
        table.prepare_snapshot()
        if option(table, "level0_stop_writes_trigger") == 5 * level0_files:
            break
        sleep(0.01)
    assert option(table, "level0_stop_writes_trigger") == 5 * level0_files
    assert option(table, "level0_slowdown_writes_trigger") == 3 * level0_files
    new = dict.fromkeys((b"key-%05d" % number for number in range(2 * count)), b"new")
    assert rows(table) == content() | new | {b"key": b"newest"}


def option(table: HydratingTable, name: str) -> int:
    """As RocksDB has it now."""
    newest = max(table._directory.glob("OPTIONS-*"))
    found = re.search(rf"^\s*{name}=(\d+)$", newest.read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def test_what_is_fetched_ahead_of_a_closed_table_misses_nothing(
    files: list[TableFile], tmp_path: Path
) -> None:
    table = ServingFactory(SMALL_BUFFERS, has_tails=True).restore(
        lay_out(files, tmp_path / "served")
    )
    keys = sorted(content())[:10]
    assert table.gaps(keys).holes
    table.close()
    assert table.gaps(keys, [(keys[0], keys[-1])]).holes == []
    table.whole()
