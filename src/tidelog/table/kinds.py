"""The kinds of tables by the names that manifests give them.

Invariant: a table that is opened here is read once and thrown away, so it gets little memory.
"""

from collections.abc import Callable, Mapping
from typing import Final

from tidelog.errors import RestoreError
from tidelog.table.memory import MemoryTableFactory
from tidelog.table.port import TableFactory
from tidelog.table.rocksdb import RocksTableFactory
from tidelog.table.rocksdb_options import RocksOptions

_MIB: Final = 1 << 20
_SMALL: Final = RocksOptions(block_cache_bytes=32 * _MIB, write_buffers_bytes=64 * _MIB)

_FACTORIES: Final[Mapping[str, Callable[[], TableFactory]]] = {
    "rocksdb": lambda: RocksTableFactory(_SMALL),
    "memory": MemoryTableFactory,
}


def reading_factory(kind: str, what: str) -> TableFactory:
    """A factory for tables of a kind that are to be read once; `what` names whose table it is.

    Raises RestoreError for a kind this release does not know.
    """
    factory = _FACTORIES.get(kind)
    if factory is None:
        raise RestoreError(
            f"the table of {what}",
            expected=f"kind {' or '.join(_FACTORIES)}",
            found=f"kind {kind!r}",
            action="use the tidelog release that wrote it, or a newer one",
        )
    return factory()
