"""Counting words in RocksDB itself: what the write buffer and the log are held against.

Invariant: the database has the options of tidelog's own tables, and no log of its own.
"""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rocksdict import Cache, Rdict, WriteBufferManager, WriteOptions

from tidelog.table.rocksdb_options import RocksOptions, table_options

_COUNT: Final = struct.Struct("<q")


class DirectCounts:
    """A count per word, read and written one by one."""

    def __init__(self, directory: Path) -> None:
        options = RocksOptions()
        cache = Cache.new_hyper_clock_cache(options.block_cache_bytes, 0)
        buffers = WriteBufferManager(options.write_buffers_bytes, False)
        self._database = Rdict(str(directory), table_options(options, cache, buffers))
        self.add = self._adder()
        """Adds to the count of a word: a get and a put."""

    def _adder(self) -> Callable[[str, int], None]:
        get, put, pack, unpack = self._database.get, self._database.put, _COUNT.pack, _COUNT.unpack
        options = WriteOptions()
        # A property at run time, whatever rocksdict's stub says.
        options.disable_wal = True  # type: ignore[assignment, method-assign]

        def add(word: str, count: int) -> None:
            key = word.encode()
            stored = get(key)
            put(key, pack(count if stored is None else unpack(stored)[0] + count), options)

        return add

    def total(self) -> int:
        """The sum of all counts."""
        return sum(_COUNT.unpack(stored)[0] for stored in self._database.values())

    def close(self) -> None:
        """Close the database."""
        self._database.close()
