"""How settings, those in `rocksdb_options` or RocksDB's own options file, reach rocksdict.

Invariants: those of `rocksdb_options`; what an options file may not change is that a table gives
back the rows that were written to it, that its snapshot is its SST files and its MANIFEST, and that
all tables keep one memory limit. Options that could are refused, and caches, memtables and the
MANIFEST's size are set over the file. Format of the file: RocksDB's wiki, "RocksDB Options File".
"""

import shutil
import tempfile
from pathlib import Path
from typing import Final

import msgspec
from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Env, Options, WriteBufferManager

from tidelog.errors import ConfigError
from tidelog.table.rocksdb_options import MANIFEST_BYTES, RocksDBConfig

_MIB: Final = 1 << 20
_REFUSED: Final = {
    "compaction_style": ("kCompactionStyleLevel", "kCompactionStyleUniversal"),
    "comparator": ("leveldb.BytewiseComparator",),
    "merge_operator": ("nullptr",),
    "compaction_filter": ("nullptr",),
    "compaction_filter_factory": ("nullptr",),
    "prefix_extractor": ("nullptr",),
    "sst_partitioner_factory": ("nullptr",),
    "enable_blob_files": ("false",),
    "inplace_update_support": ("false",),
    "allow_ingest_behind": ("false",),
    "paranoid_checks": ("true",),
    "force_consistency_checks": ("true",),
    "checksum": ("kCRC32c", "kxxHash", "kxxHash64", "kXXH3"),
    "verify_sst_unique_id_in_manifest": ("true",),
    "db_paths": ("", "{}"),
    "cf_paths": ("", "{}"),
}
"""Options of which only some values are safe."""

_FAMILY: Final = "default"

STALLS: Final = (3, 5)
"""Writes slow down, and stop, at so many times `level0_files`."""

_WINDOW_ROWS: Final = 4096
_MOST_DELETED: Final = 3072
"""Deleted ones among so many rows in a row. With half of them, the share where each row that comes
replaces another, a table takes a quarter more processor time (decision 002)."""


class TableOptions(msgspec.Struct, frozen=True):
    database: Options
    rows: Options
    """Options of the column family with the rows, and of files that are written beside it; the
    same object as `database` unless they come from an options file."""
    memtables: WriteBufferManager
    """Limits the memtables of all tables of a factory together."""
    target_file_bytes: int
    level0_files: int


def table_options(
    options: RocksDBConfig, cache: Cache, buffers: WriteBufferManager
) -> TableOptions:
    """The options of one table that shares `cache` and `buffers` with others; nothing of `options`
    is automatic any more. Raises ConfigError for an options file that cannot be used.
    """
    if options.options_file is not None:
        database, rows = read_options_file(options.options_file, cache)
    else:
        database = rows = _own_options(options, cache)
    assert options.write_buffer_bytes is not None and options.mmap_reads is not None
    database.create_if_missing(True)
    database.set_write_buffer_manager(buffers)
    database.set_max_manifest_file_size(MANIFEST_BYTES)
    database.set_allow_mmap_reads(options.mmap_reads)
    rows.set_write_buffer_size(options.write_buffer_bytes)
    return TableOptions(database, rows, buffers, options.target_file_bytes, options.level0_files)


def _own_options(options: RocksDBConfig, cache: Cache) -> Options:
    block = BlockBasedOptions()
    block.set_block_cache(cache)
    block.set_block_size(options.block_bytes)
    if options.bloom_bits_per_key:
        block.set_bloom_filter(options.bloom_bits_per_key, False)
    result = Options(raw_mode=True)
    result.set_max_write_buffer_number(3)
    result.set_level_zero_file_num_compaction_trigger(options.level0_files)
    slow, stop = (times * options.level0_files for times in STALLS)
    result.set_level_zero_slowdown_writes_trigger(slow)
    result.set_level_zero_stop_writes_trigger(stop)
    result.set_target_file_size_base(options.target_file_bytes)
    result.set_compression_type(getattr(DBCompressionType, options.compression)())
    result.set_max_background_jobs(options.background_jobs)
    result.set_block_based_table_factory(block)
    # One writer per table: the lock-free memtable insert only costs.
    result.set_allow_concurrent_memtable_write(False)
    result.set_enable_write_thread_adaptive_yield(False)
    # Most reads miss the memtables; a filter spares them the walk through each skip list.
    result.set_memtable_prefix_bloom_ratio(options.memtable_bloom_ratio)
    result.set_memtable_whole_key_filtering(True)
    # A scan passes what marks deleted rows: a file of little else is compacted at once.
    result.add_compact_on_deletion_collector_factory(_WINDOW_ROWS, _MOST_DELETED, 0)
    result.set_keep_log_file_num(2)
    result.set_max_log_file_size(_MIB)
    result.set_stats_dump_period_sec(0)
    result.set_stats_persist_period_sec(0)
    return result


def read_options_file(path: Path, cache: Cache) -> tuple[Options, Options]:
    """Options of the database, and of the column family with the rows, from a file.

    Raises ConfigError for a file that cannot be read, that RocksDB does not take, or that has an
    option which tables cannot work with.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise ConfigError(
            f"option rocksdb.options_file {path}",
            expected="a text file that can be read",
            found=str(cause),
            action="correct the path, or leave the option out",
        ) from cause
    _refuse(path, text)
    # RocksDB reads the newest options file of a database's directory.
    with tempfile.TemporaryDirectory(prefix="tidelog-options-") as directory:
        shutil.copyfile(path, Path(directory) / "OPTIONS-000001")
        try:
            database, families = Options.load_latest(directory, Env(), False, cache)
        except Exception as cause:
            raise _not_taken(path, str(cause).replace(directory, str(path.parent))) from cause
    if set(families) != {_FAMILY}:
        raise _not_taken(path, f"column families {', '.join(sorted(families)) or 'none'}")
    return database, families[_FAMILY]


def _refuse(path: Path, text: str) -> None:
    import configparser  # noqa: PLC0415  # rare

    parser = configparser.ConfigParser(interpolation=None, strict=False, delimiters=("=",))
    try:
        parser.read_string(text)
    except configparser.Error as cause:
        raise _not_taken(path, str(cause).partition("\n")[0]) from cause
    for section in parser.sections():
        for name, value in parser[section].items():
            safe = _REFUSED.get(name)
            if safe is not None and value.strip() not in safe:
                raise ConfigError(
                    f"{name} in {path}",
                    expected=" or ".join(allowed or "no value" for allowed in safe),
                    found=value,
                    action="correct it: a table could lose rows or leave them out of a snapshot",
                )


def _not_taken(path: Path, problem: str) -> ConfigError:
    return ConfigError(
        f"option rocksdb.options_file {path}",
        expected='RocksDB\'s options file with [Version], [DBOptions], [CFOptions "default"] and, '
        'for blocks, [TableOptions/BlockBasedTable "default"]',
        found=problem,
        action="correct it; every database of RocksDB has such a file, OPTIONS-<number>",
    )
