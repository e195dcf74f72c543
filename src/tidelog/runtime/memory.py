"""The memory of a job: how one budget is divided among all that holds its data.

Invariant: the parts add up to less than the budget; the rest is for short-lived copies, such as a
segment that is being compressed. Python, the libraries and what the user's functions keep come on
top.
"""

from dataclasses import replace
from typing import Final, NamedTuple

from tidelog.changelog.upload_config import UploadConfig
from tidelog.table.rocksdb_options import LARGEST_MEMTABLE, RocksDBConfig, RocksMemory

DEFAULT_MEMORY: Final = 1 << 30
LEAST_MEMORY: Final = 32 << 20

_BUFFERS_PER_TABLE: Final = 2
"""Memtables that a table has at a time: one is written to while another is flushed."""
_LEAST_MEMTABLE: Final = 256 << 10
_LEAST_BUFFER: Final = 32 << 10
"""Least size of a buffer of records: a smaller one costs more memory than its records take."""


class MemoryParts(NamedTuple):
    """The most bytes that each part may hold."""

    tables: int
    """Block cache of RocksDB; its memtables count against it as well."""
    memtables: int
    rows: int
    """Write buffers and caches of all states."""
    log: int
    """Changes not yet in segments, and segments not yet in the store."""
    files: int
    """Table files that are being uploaded."""
    channels: int
    """Buffers of records between tasks."""
    mapped_reads: bool
    """Tables map their files, which then count as resident memory of the process."""

    @classmethod
    def of(cls, budget: int) -> "MemoryParts":
        return cls(
            tables=budget * 3 // 8,
            memtables=budget // 4,
            rows=budget // 4,
            log=budget // 8,
            files=budget // 16,
            channels=budget // 16,
            # A budget below the default asks for a small process.
            mapped_reads=budget >= DEFAULT_MEMORY,
        )

    def upload(self, config: UploadConfig) -> UploadConfig:
        """The uploader's settings, cut down to its part."""
        limit = min(config.limit_bytes, self.log)
        # While one segment is on its way, with its copy, the next one gathers.
        return replace(
            config, limit_bytes=limit, segment_bytes=min(config.segment_bytes, max(1, limit // 4))
        )

    def buffer_bytes(self, limit: int, buffers: int) -> int:
        """Most bytes of one of so many `buffers` of records; `limit` is the configured one."""
        return min(limit, max(_LEAST_BUFFER, self.channels // max(1, buffers)))

    def rocksdb(self, options: RocksDBConfig, tables: int) -> RocksDBConfig:
        """The options for so many `tables` that share these parts."""
        memtables = options.write_buffers_bytes or self.memtables
        buffer_bytes = memtables // (_BUFFERS_PER_TABLE * max(1, tables))
        memory = RocksMemory(
            block_cache_bytes=self.tables,
            write_buffers_bytes=self.memtables,
            write_buffer_bytes=max(_LEAST_MEMTABLE, min(LARGEST_MEMTABLE, buffer_bytes)),
            mmap_reads=self.mapped_reads,
        )
        return options.within(memory)
