"""The RocksDB tables of a verification."""

from typing import Final

from tidelog.table.rocksdb import RocksTableFactory
from tidelog.table.rocksdb_options import RocksOptions

_MIB: Final = 1 << 20
_OPTIONS: Final = RocksOptions(block_cache_bytes=16 * _MIB, write_buffers_bytes=64 * _MIB)
"""Several are open side by side, and each is read once from front to end."""


def rocks_factory() -> RocksTableFactory:
    """Tables with little memory."""
    return RocksTableFactory(_OPTIONS)
