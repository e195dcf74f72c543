"""Opens RocksDB tables: new ones, those of a snapshot, and those of which most is yet to come.

Invariant: tables of one factory share one block cache and one budget of memtables.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from rocksdict import Cache, WriteBufferManager

from tidelog.table.failures import failures
from tidelog.table.port import PreparedRows, Serve, ServedTable
from tidelog.table.rocksdb import Process, RocksTable, prepare, unpack
from tidelog.table.rocksdb_options import RocksDBConfig, RocksMemory
from tidelog.table.rocksdict_options import table_options

if TYPE_CHECKING:
    from tidelog.table.holes import Holes

_MANY_FILES: Final = 1 << 20
"""More open files than a table has. With a limit RocksDB opens a table although it cannot read most
of its files, and each of these when it is first needed."""


class RocksTableFactory:
    """Opens RocksDB tables that share one block cache and one write-buffer budget."""

    kind: ClassVar[str] = "rocksdb"

    def __init__(self, options: RocksDBConfig | None = None) -> None:
        self._options = chosen = (options or RocksDBConfig()).within(RocksMemory())
        assert chosen.block_cache_bytes is not None and chosen.write_buffers_bytes is not None
        self._cache = Cache.new_hyper_clock_cache(chosen.block_cache_bytes, 0)
        # Memtables count as part of the cache: together they keep one limit.
        self._buffers = WriteBufferManager.new_write_buffer_manager_with_cache(
            chosen.write_buffers_bytes, False, self._cache
        )
        # Of files that are written beside tables, side by side in several threads.
        self._writing = table_options(chosen, self._cache, self._buffers)

    @property
    def memtable_bytes(self) -> int:
        return self._buffers.get_usage()

    @property
    def block_cache_bytes(self) -> int:
        return max(0, self._cache.get_usage() - self.memtable_bytes)

    def prepare(
        self, directory: Path, keys: Sequence[bytes], values: Sequence[bytes | None]
    ) -> PreparedRows:
        with failures(directory):
            return prepare(self._writing, directory, keys, values)

    def create(self, directory: Path) -> RocksTable:
        return self._open(directory, new=True)

    def restore(self, directory: Path) -> RocksTable:
        with failures(directory):
            unpack(directory)
        return self._open(directory, new=False)

    @property
    def serve(self) -> "Serve | None":
        # An options file may change how files are laid out, and when they are read.
        return self._serve if self._options.options_file is None else None

    def _serve(self, directory: Path, holes: "Holes", has_tails: bool) -> ServedTable:
        from tidelog.table.hydrating import HydratingTable, opened  # noqa: PLC0415  # few starts

        Process.check()
        options = table_options(self._options, self._cache, self._buffers)
        options.database.create_if_missing(False)
        options.rows.set_disable_auto_compactions(True)
        if not has_tails:
            options.database.set_max_open_files(_MANY_FILES)
            options.database.set_skip_stats_update_on_db_open(True)
        with failures(directory):
            unpack(directory)
        table = opened(lambda: HydratingTable(directory, options, holes), holes, directory)
        Process.tables.add(table)
        return table

    def _open(self, directory: Path, *, new: bool) -> RocksTable:
        Process.check()
        options = table_options(self._options, self._cache, self._buffers)
        options.database.create_if_missing(new)
        options.database.set_error_if_exists(new)
        with failures(directory):
            directory.mkdir(parents=True, exist_ok=True)
            table = RocksTable(directory, options)
        Process.tables.add(table)
        return table
