"""A table in front of which rows may wait in memory until there is time to write them.

A barrier then waits for the log alone, and a row that changes from checkpoint to checkpoint is
written once for many of them.

Invariants: a read sees every write; the table below has all rows before a scan, a snapshot or a
bulk operation; what waits is forgotten only after the table below took it.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from tidelog.table.port import Freeze, PreparedRows, Table, TableFile

_NOT_HERE: Final = object()
SETTLED_AT_ONCE: Final = 2048
"""Rows per step of `settle`: a few milliseconds of work."""


class WriteBehind:
    """A table in front of another; call `settle` before what was put off takes too much memory."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._waiting: dict[bytes, bytes | None] = {}
        self._row_bytes = 0
        """Estimated bytes of a waiting row; measured at the first row of the newest batch."""
        self.through = False
        """Nothing is put off: for states that are scanned all the time."""

    @property
    def waiting(self) -> int:
        """Rows that the table below does not have yet."""
        return len(self._waiting)

    @property
    def waiting_bytes(self) -> int:
        """About how many bytes of keys and values they have."""
        return len(self._waiting) * self._row_bytes

    def settle(self, most: int = SETTLED_AT_ONCE) -> bool:
        """Write so many of the waiting rows, those that wait longest; whether there are more.

        Raises what the table's `write` raises; the rows wait on.
        """
        keys = sorted(islice(self._waiting, most))
        if keys:
            self._table.write(keys, list(map(self._waiting.__getitem__, keys)))
        if len(keys) == len(self._waiting):
            self._waiting = {}
        else:
            for key in keys:
                del self._waiting[key]
        return bool(self._waiting)

    def get(self, key: bytes) -> bytes | None:
        value = self._waiting.get(key, _NOT_HERE)
        return self._table.get(key) if value is _NOT_HERE else value  # type: ignore[return-value]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        waiting = self._waiting
        if not waiting:
            return self._table.get_many(keys)
        elsewhere = [key for key in keys if key not in waiting]
        stored = self._table.get_many(elsewhere) if elsewhere else []
        if len(elsewhere) == len(keys):
            return stored
        below = iter(stored)
        return [waiting[key] if key in waiting else next(below) for key in keys]

    def put_off(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Like `write`, but the table below gets the rows when they are settled."""
        if self.through:
            self.write(keys, values)
            return
        # Paired first, so that unequal columns are refused before any row changes.
        self._waiting.update(dict(zip(keys, values, strict=True)))
        if keys:
            self._row_bytes = len(keys[0]) + len(values[0] or b"")

    def write(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        self._all_below().write(keys, values)

    def load(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        self._all_below().load(keys, values)

    def ingest(self, rows: PreparedRows) -> None:
        self._all_below().ingest(rows)

    def scan(self, lower: bytes, upper: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        return self._all_below().scan(lower, upper)

    def columns(self, most_rows: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
        return self._all_below().columns(most_rows)

    def clip(self, lower: bytes, upper: bytes | None) -> None:
        self._all_below().clip(lower, upper)

    def crowded(self) -> bool:
        return self._table.crowded()

    def prepare_snapshot(self) -> None:
        # In another thread: what waits belongs to the owner, who settles before.
        self._table.prepare_snapshot()

    def freeze(self, directory: Path) -> Freeze:
        return self._all_below().freeze(directory)

    def snapshot(self, directory: Path) -> list[TableFile]:
        return self._all_below().snapshot(directory)

    def size_bytes(self) -> int:
        return self._table.size_bytes() + self.waiting_bytes

    def close(self) -> None:
        self._waiting = {}
        self._table.close()

    def _all_below(self) -> Table:
        while self._waiting:
            self.settle()
        return self._table
