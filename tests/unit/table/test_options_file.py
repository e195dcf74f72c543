"""RocksDB's own options file sets what has no name in tidelog, and nothing that could lose rows."""

import asyncio
from pathlib import Path

import pytest

from tests.unit.storage.conformance import names
from tests.unit.table.conformance import TableConformance
from tidelog import Callback, Effects, Job, JobConfig, JobRunner, Replayable, RocksOptions
from tidelog.effects import InlineOffload
from tidelog.errors import ConfigError
from tidelog.storage.memory import MemoryStore
from tidelog.table.port import TableFactory
from tidelog.table.rocksdb import RocksTableFactory

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
        return RocksTableFactory(RocksOptions(options_file=options_file))


def written_options(directory: Path) -> str:
    return max(directory.glob("OPTIONS-*")).read_text()


def test_settings_of_the_file_reach_rocksdb_and_memory_stays_tidelogs(
    tmp_path: Path, options_file: Path
) -> None:
    factory = RocksTableFactory(RocksOptions(options_file=options_file))
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
    table = RocksTableFactory(RocksOptions(options_file=options_file)).create(tmp_path / "table")
    table.write([b"a"], [b"1"])
    assert table.get(b"a") == b"1"
    table.close()


def counting() -> Job:
    job = Job("count")
    words = job.source(Replayable(["a", "b", "a"]))
    words.key_by(str).aggregate(lambda _: 1, lambda a, b: a + b).sink(Callback(print))
    return job


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
    config = JobConfig(rocksdb=RocksOptions(options_file=options_file))
    with pytest.raises(ConfigError, match=says) as caught:
        asyncio.run(JobRunner(counting(), store, config, Effects(offload=InlineOffload())).run())
    assert str(options_file) in str(caught.value)
    assert asyncio.run(names(store)) == []
