"""How the settings in `rocksdb_options` become options of rocksdict; the invariant is theirs."""

import msgspec
from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options, WriteBufferManager

from tidelog.table.rocksdb_options import MANIFEST_BYTES, RocksOptions

_MIB = 1 << 20


class TableOptions(msgspec.Struct, frozen=True):
    database: Options
    rows: Options
    """Options of the column family with the rows, and of files that are written beside it; the
    same object as `database` unless they come from an options file."""
    memtables: WriteBufferManager
    """Limits the memtables of all tables of a factory together."""
    target_file_bytes: int


def table_options(options: RocksOptions, cache: Cache, buffers: WriteBufferManager) -> TableOptions:
    """The options of one table that shares `cache` and `buffers` with others; nothing of `options`
    is automatic any more. Raises ConfigError for an options file that cannot be used.
    """
    if options.options_file is not None:
        from tidelog.table.rocksdb_file import read_options_file  # noqa: PLC0415  # rare

        database, rows = read_options_file(options.options_file, cache)
    else:
        database = rows = _own_options(options, cache)
    assert options.write_buffer_bytes is not None and options.mmap_reads is not None
    database.create_if_missing(True)
    database.set_write_buffer_manager(buffers)
    database.set_max_manifest_file_size(MANIFEST_BYTES)
    database.set_allow_mmap_reads(options.mmap_reads)
    rows.set_write_buffer_size(options.write_buffer_bytes)
    return TableOptions(database, rows, buffers, options.target_file_bytes)


def _own_options(options: RocksOptions, cache: Cache) -> Options:
    result = Options(raw_mode=True)
    result.set_max_write_buffer_number(3)
    result.set_level_zero_file_num_compaction_trigger(options.level0_files)
    result.set_level_zero_slowdown_writes_trigger(3 * options.level0_files)
    result.set_level_zero_stop_writes_trigger(5 * options.level0_files)
    result.set_target_file_size_base(options.target_file_bytes)
    result.set_compression_type(getattr(DBCompressionType, options.compression)())
    result.set_max_background_jobs(options.background_jobs)
    result.set_block_based_table_factory(block_options(options, cache))
    # One writer per table: the lock-free memtable insert only costs.
    result.set_allow_concurrent_memtable_write(False)
    result.set_enable_write_thread_adaptive_yield(False)
    # Most reads miss the memtables; a filter spares them the walk through each skip list.
    result.set_memtable_prefix_bloom_ratio(options.memtable_bloom_ratio)
    result.set_memtable_whole_key_filtering(True)
    result.set_keep_log_file_num(2)
    result.set_max_log_file_size(_MIB)
    result.set_stats_dump_period_sec(0)
    result.set_stats_persist_period_sec(0)
    return result


def block_options(options: RocksOptions, cache: Cache) -> BlockBasedOptions:
    """How SST files are laid out and cached."""
    block = BlockBasedOptions()
    block.set_block_cache(cache)
    block.set_block_size(options.block_bytes)
    if options.bloom_bits_per_key:
        block.set_bloom_filter(options.bloom_bits_per_key, False)
    return block
