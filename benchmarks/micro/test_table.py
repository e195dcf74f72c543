"""The RocksDB table: reads and writes of a buffer, a scan, a load, a snapshot."""

import random
from itertools import count
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.micro.inputs import BUFFER, FLUSHED, row_keys
from tidelog.table.rocksdb import RocksTable
from tidelog.table.rocksdb_factory import RocksTableFactory

ROWS = 100_000
VALUE = bytes(8)


@pytest.fixture(scope="module")
def keys() -> list[bytes]:
    return row_keys(ROWS)


@pytest.fixture
def filled(table: RocksTable, keys: list[bytes]) -> RocksTable:
    """100,000 rows in one file."""
    table.load(keys, [VALUE] * ROWS)
    return table


def test_get_many(benchmark: BenchmarkFixture, filled: RocksTable, keys: list[bytes]) -> None:
    """2048 random rows."""
    wanted = random.Random(1).choices(keys, k=BUFFER)
    assert benchmark(filled.get_many, wanted) == [VALUE] * BUFFER


def test_write(benchmark: BenchmarkFixture, filled: RocksTable, keys: list[bytes]) -> None:
    """16,384 rows in one sorted batch."""
    changed = sorted(random.Random(1).sample(keys, FLUSHED))
    values = [b"changed!"] * FLUSHED
    benchmark.pedantic(filled.write, args=(changed, values), rounds=20)
    assert filled.get(changed[0]) == b"changed!"


def test_scan(benchmark: BenchmarkFixture, filled: RocksTable) -> None:
    """All 100,000 rows in order."""
    assert benchmark(lambda: sum(1 for _ in filled.scan(b"", None))) == ROWS


def test_load(benchmark: BenchmarkFixture, tmp_path: Path, keys: list[bytes]) -> None:
    """100,000 sorted rows into an empty table, as a restore does."""
    factory, number = RocksTableFactory(), count()
    tables: list[RocksTable] = []

    def empty() -> tuple[tuple[RocksTable, list[bytes], list[bytes]], dict[str, object]]:
        while tables:
            tables.pop().close()
        tables.append(factory.create(tmp_path / str(next(number))))
        return (tables[0], keys, [VALUE] * ROWS), {}

    benchmark.pedantic(RocksTable.load, setup=empty, rounds=10)
    assert tables[0].get(keys[-1]) == VALUE
    tables[0].close()


def test_snapshot(
    benchmark: BenchmarkFixture, filled: RocksTable, keys: list[bytes], tmp_path: Path
) -> None:
    """Freeze a table whose memtable was flushed: hard links and one small file."""
    number = count()

    def flushed() -> tuple[tuple[Path], dict[str, object]]:
        filled.write(keys[:BUFFER], [VALUE] * BUFFER)
        filled.prepare_snapshot()
        return (tmp_path / f"snapshot-{next(number)}",), {}

    files = benchmark.pedantic(lambda at: filled.freeze(at)(), setup=flushed, rounds=10)
    assert sum(file.shared for file in files) >= 2
