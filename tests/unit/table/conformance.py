"""What every table does, whatever holds its rows; `test_memory` and `test_rocksdb` inherit it.

RocksDB is opened with SMALL_BUFFERS, so that a few thousand rows already flush and compact.
"""

import hashlib
import random
import shutil
from pathlib import Path
from threading import Thread

import pytest

from tests.support.damage import Damage, cut, damage_file, emptied, flipped, missing
from tidelog import CorruptObjectError, InvariantError, RocksDBConfig
from tidelog.table.port import Table, TableFactory, TableFile

INGESTED = 33_000
"""So many rows go into files of RocksDB past its buffers."""
SMALL_BUFFERS = RocksDBConfig(write_buffer_bytes=64 << 10, target_file_bytes=32 << 10)


def rows(table: Table) -> dict[bytes, bytes]:
    return dict(table.scan(b"", None))


def put(table: Table, content: dict[bytes, bytes]) -> None:
    keys = sorted(content)
    table.write(keys, [content[key] for key in keys])


def many_rows(seed: int, count: int = 5000) -> dict[bytes, bytes]:
    rng = random.Random(seed)
    return {b"key-%05d" % rng.randrange(2 * count): rng.randbytes(20) for _ in range(count)}


def digests(files: list[TableFile]) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.path.read_bytes()).hexdigest() for file in files}


def lay_out(files: list[TableFile], directory: Path) -> Path:
    """What a restore does: exactly the snapshot's files in a fresh directory."""
    directory.mkdir(parents=True)
    for file in files:
        shutil.copyfile(file.path, directory / file.name)
    return directory


class TableConformance:
    """Inherit, and give a `factory` fixture."""

    @pytest.fixture
    def table(self, factory: TableFactory, tmp_path: Path) -> Table:
        return factory.create(tmp_path / "live")

    def test_columns_are_all_rows_in_the_order_of_their_keys(self, table: Table) -> None:
        assert list(table.columns(10)) == []
        content = many_rows(seed=4)
        put(table, content)
        table.prepare_snapshot()
        table.write([min(content), b"key-20000"], [None, b"late"])
        expected = sorted({**content, b"key-20000": b"late"}.items())[1:]
        chunks = list(table.columns(999))
        assert [
            row for keys, values in chunks for row in zip(keys, values, strict=True)
        ] == expected
        assert [len(keys) for keys, _ in chunks[:-1]] == [999] * (len(chunks) - 1)

    def test_a_batch_with_unequal_columns_is_refused_whole(self, table: Table) -> None:
        with pytest.raises(ValueError, match="argument"):
            table.write([b"a", b"b"], [b"1"])
        assert rows(table) == {}

    def test_a_scan_sees_the_table_as_it_was_when_the_scan_started(self, table: Table) -> None:
        put(table, {b"a": b"1", b"b": b"2"})
        scan = table.scan(b"", None)
        table.write([b"a", b"b", b"c"], [b"9", None, b"3"])
        assert list(scan) == [(b"a", b"1"), (b"b", b"2")]

    @pytest.mark.parametrize("count", [10, INGESTED])
    def test_rows_prepared_before_a_table_is_open_win_over_what_it_has(
        self, table: Table, factory: TableFactory, tmp_path: Path, count: int
    ) -> None:
        keys = [b"%06d" % number for number in range(count)]
        table.write([*keys[:2], b"other"], [b"before"] * 3)
        files = table.freeze(tmp_path / "snapshot")()
        prepared = [
            factory.prepare(tmp_path / "log" / "0", keys, [b"older"] * count),
            factory.prepare(tmp_path / "log" / "1", keys, [None, *[b"newer"] * (count - 1)]),
        ]
        restored = factory.restore(lay_out(files, tmp_path / "restored"))
        for batch in prepared:
            restored.ingest(batch)
        expected = dict.fromkeys(keys[1:], b"newer") | {b"other": b"before"}
        assert rows(restored) == expected
        again = restored.freeze(tmp_path / "again")()
        assert rows(factory.restore(lay_out(again, tmp_path / "once more"))) == expected

    def test_a_snapshot_lists_exactly_the_files_of_its_directory(
        self, table: Table, tmp_path: Path
    ) -> None:
        put(table, many_rows(1))
        files = table.freeze(tmp_path / "deep" / "snapshot")()
        found = {path: path.stat().st_size for path in (tmp_path / "deep/snapshot").iterdir()}
        assert {file.path: file.size for file in files} == found
        assert all(file.path.name == file.name for file in files)
        assert any(file.shared for file in files)

    def test_shared_files_keep_name_and_content_from_snapshot_to_snapshot(
        self, table: Table, tmp_path: Path
    ) -> None:
        seen: dict[str, str] = {}
        for number in range(8):
            put(table, many_rows(number, 500))
            files = table.freeze(tmp_path / f"{number}")()
            for name, digest in digests([file for file in files if file.shared]).items():
                assert seen.setdefault(name, digest) == digest

    def test_a_small_change_leaves_most_of_a_snapshot_shared(
        self, table: Table, tmp_path: Path
    ) -> None:
        keys = [b"%06d" % number for number in range(40_000)]
        table.load(keys, keys)
        before = {file.name for file in table.freeze(tmp_path / "1")()}
        table.write(keys[5:6], [b"changed"])
        after = table.freeze(tmp_path / "2")()
        new = sum(file.size for file in after if not (file.shared and file.name in before))
        assert new < sum(file.size for file in after) / 10

    def test_a_snapshot_can_be_prepared_in_a_thread_while_the_owner_writes(
        self, table: Table, factory: TableFactory, tmp_path: Path
    ) -> None:
        content: dict[bytes, bytes] = {}
        for seed in range(20):
            content.update(many_rows(seed, 1_000))
            put(table, content)
            preparation = Thread(target=table.prepare_snapshot)
            preparation.start()
            content[b"key-%05d" % seed] = b"while preparing"
            put(table, {b"key-%05d" % seed: b"while preparing"})
            assert table.get(b"key-%05d" % seed) == b"while preparing"
            preparation.join()
        files = table.freeze(tmp_path / "snapshot")()
        assert rows(factory.restore(lay_out(files, tmp_path / "restored"))) == content

    def test_close_is_orderly_while_another_thread_prepares_a_snapshot(self, table: Table) -> None:
        failures: list[InvariantError] = []

        def prepare() -> None:
            try:
                table.prepare_snapshot()
            except InvariantError as closed_first:
                failures.append(closed_first)

        put(table, many_rows(1, 20_000))
        preparation = Thread(target=prepare)
        preparation.start()
        table.close()
        preparation.join()
        assert all("closed" in str(failure) for failure in failures)

    @pytest.mark.parametrize("damage", [cut, emptied, missing])
    def test_a_restore_refuses_any_damaged_file_by_name(
        self, table: Table, factory: TableFactory, tmp_path: Path, damage: Damage
    ) -> None:
        put(table, many_rows(1))
        files = table.freeze(tmp_path / "snapshot")()
        for file in files:
            directory = lay_out(files, tmp_path / "damaged" / file.name)
            damage_file(directory / file.name, damage)
            with pytest.raises(CorruptObjectError, match=file.name):
                factory.restore(directory)

    def test_a_flipped_bit_is_refused_at_the_latest_when_it_is_read(
        self, table: Table, factory: TableFactory, tmp_path: Path
    ) -> None:
        put(table, many_rows(1))
        files = table.freeze(tmp_path / "snapshot")()
        for file in files:
            directory = lay_out(files, tmp_path / "flipped" / file.name)
            damage_file(directory / file.name, flipped)
            with pytest.raises(CorruptObjectError, match=file.name):
                rows(factory.restore(directory))

    def test_a_directory_without_a_snapshot_is_refused(
        self, factory: TableFactory, tmp_path: Path
    ) -> None:
        with pytest.raises(CorruptObjectError, match="no such file"):
            factory.restore(tmp_path)
