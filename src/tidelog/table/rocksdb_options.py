"""The RocksDB settings of tidelog's tables, and how they become rocksdict options.

Invariant: every value that differs from RocksDB's default has its reason here or its numbers in
docs/decisions/002-rocksdb-options.md.
"""

from dataclasses import dataclass

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    WriteBufferManager,
)

_MIB = 1 << 20

MANIFEST_BYTES = 64 << 10
"""The MANIFEST is part of every snapshot, so it begins anew before it grows large: a file of the
table takes about 130 bytes in it."""


@dataclass(frozen=True, slots=True)
class RocksOptions:
    """What an application may want to change; sizes in bytes.

    `block_cache_bytes` and `write_buffers_bytes` bound the memory of all tables of one factory
    together; `write_buffer_bytes` is the size at which one table flushes, `level0_files` the number
    of flushed files that starts a compaction. `mmap_reads` trades an error on a failing disk
    (the process ends with SIGBUS) for reads that copy nothing.
    """

    block_cache_bytes: int = 256 * _MIB
    write_buffer_bytes: int = 16 * _MIB
    write_buffers_bytes: int = 192 * _MIB
    block_bytes: int = 4 << 10
    bloom_bits_per_key: int = 10
    memtable_bloom_ratio: float = 0.05
    level0_files: int = 8
    target_file_bytes: int = 8 * _MIB
    compression: str = "lz4"
    background_jobs: int = 2
    mmap_reads: bool = True


def table_options(options: RocksOptions, cache: Cache, buffers: WriteBufferManager) -> Options:
    """The rocksdict options of one table that shares `cache` and `buffers` with others."""
    result = Options(raw_mode=True)
    result.create_if_missing(True)
    result.set_write_buffer_manager(buffers)
    result.set_write_buffer_size(options.write_buffer_bytes)
    result.set_max_write_buffer_number(3)
    result.set_level_zero_file_num_compaction_trigger(options.level0_files)
    result.set_level_zero_slowdown_writes_trigger(3 * options.level0_files)
    result.set_level_zero_stop_writes_trigger(5 * options.level0_files)
    result.set_target_file_size_base(options.target_file_bytes)
    result.set_compression_type(getattr(DBCompressionType, options.compression)())
    result.set_max_background_jobs(options.background_jobs)
    result.set_allow_mmap_reads(options.mmap_reads)
    result.set_block_based_table_factory(block_options(options, cache))
    # One writer per table: the lock-free memtable insert only costs.
    result.set_allow_concurrent_memtable_write(False)
    result.set_enable_write_thread_adaptive_yield(False)
    # Most reads miss the memtables; a filter spares them the walk through each skip list.
    result.set_memtable_prefix_bloom_ratio(options.memtable_bloom_ratio)
    result.set_memtable_whole_key_filtering(True)
    result.set_max_manifest_file_size(MANIFEST_BYTES)
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
