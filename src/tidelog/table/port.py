"""The table port: the local, ordered key-value table a subtask reads its state from.

Invariants every table keeps (`tests/unit/table/conformance.py` proves them):
- keys are ordered by their bytes; `scan` sees every write made before it started;
- a table is a cache of the log: it needs no durability of its own, a crash discards it;
- a snapshot is a set of files that never change afterwards, so a file uploaded once is known by
  its local name for as long as that table lives;
- `prepare_snapshot` may run in another thread while the owner reads and writes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from tidelog.table.holes import Gaps, Holes


@dataclass(frozen=True, slots=True)
class TableFile:
    """One immutable file of a snapshot: its name inside the table and where it lies.

    `shared` files (SSTs) may occur unchanged in later snapshots and are uploaded once;
    the others are small and belong to this snapshot only.
    """

    name: str
    path: Path
    size: int
    shared: bool


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """A batch that `TableFactory.prepare` made for a table: rows in memory, or files of rows."""

    keys: Sequence[bytes] = ()
    values: Sequence[bytes | None] = ()
    files: Sequence[Path] = ()


Freeze = Callable[[], list[TableFile]]
"""Lays a frozen content out as files; blocking, callable from a thread while the owner goes on."""


class Table(Protocol):
    """An open table; not safe for concurrent use except where a method says so."""

    def get(self, key: bytes) -> bytes | None: ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values in the order of `keys`, None where absent."""

    def write(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Apply one atomic batch; a value of None deletes. Keys are distinct, best sorted."""

    def load(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Like `write` for large, sorted, distinct batches during restore (bulk ingestion)."""

    def ingest(self, rows: PreparedRows) -> None:
        """Like `load` for a batch of the table's factory; its files become the table's own."""

    def scan(self, lower: bytes, upper: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Entries with lower <= key < upper in key order; upper None means to the end."""

    def columns(self, most_rows: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """All keys in order and their values, in batches; for what reads the whole table once."""

    def is_empty(self) -> bool:
        """Whether there is no row; False also where that is not known without a look."""

    def clip(self, lower: bytes, upper: bytes | None) -> None:
        """Remove every entry but those with lower <= key < upper, without reading them all."""

    def crowded(self) -> bool:
        """Whether unflushed writes of all tables of the factory take more memory than they may:
        `prepare_snapshot` before the next write brings it back.
        """

    def prepare_snapshot(self) -> None:
        """Do the slow part of the next snapshot ahead of it; blocking, callable from a thread."""

    def freeze(self, directory: Path) -> Freeze:
        """Freeze the present content for a snapshot under `directory` (absent before); short."""

    def size_bytes(self) -> int:
        """Estimated size of the live data in bytes."""

    def close(self) -> None: ...


class ServedTable(Table, Protocol):
    """An open table whose files still arrive; reads meet holes, and wait until they are filled."""

    def gaps(
        self, keys: list[bytes], ranges: Sequence[tuple[bytes, bytes]] = (), rows: int = 1
    ) -> "Gaps":
        """What is missing to read these keys, and the first rows of these ranges of keys.

        Raises what reads raise. Callable from a thread.
        """

    def is_stalled(self) -> bool:
        """Whether writers have to wait until it is whole: what they wrote has made many files."""

    def whole(self) -> None:
        """All files are here: from now on it is compacted. Blocking; callable from a thread."""


Serve: TypeAlias = "Callable[[Path, Holes, bool], ServedTable]"
"""Opens a table from a snapshot's files of which most are placeholders; blocking. The flag says
that the tails of all files are there. Raises what `TableFactory.restore` and the holes raise."""


class TableFactory(Protocol):
    """Opens tables of one kind."""

    @property
    def kind(self) -> str:
        """Name of the kind, as descriptors store it."""

    @property
    def memtable_bytes(self) -> int:
        """Bytes of all tables' changes in memory that their budget counts."""

    @property
    def block_cache_bytes(self) -> int:
        """Bytes of all tables' cached blocks that their budget counts."""

    def prepare(
        self, directory: Path, keys: Sequence[bytes], values: Sequence[bytes | None]
    ) -> PreparedRows:
        """Do the slow part of a `load` while the table is not open yet; blocking, callable from a
        thread. Files, if the batch is worth it, lie under `directory`, which is absent before.
        """

    def create(self, directory: Path) -> Table:
        """Open an empty table that keeps its files under `directory`."""

    def restore(self, directory: Path) -> Table:
        """Open a table from a snapshot's files, already laid out under `directory`.

        Raises CorruptObjectError when the files do not form a table of this kind.
        """

    @property
    def serve(self) -> "Serve | None":
        """Opens a table before its files are here; None: its tables cannot be."""
