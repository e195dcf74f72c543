"""A table in memory: for small state, tests and simulation.

Invariants: `_keys`, when present, is the sorted list of exactly the keys in `_rows`; it is
replaced, never changed, so a running scan keeps its view. Snapshot chunks are named by their
content and cut after keys that their own CRC selects, so a change of one row renews one chunk;
the small INDEX names the chunks in key order.
"""

import hashlib
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from tidelog.table.failures import corrupt, failures
from tidelog.table.frame import Row, crc32c, encode_rows, read_rows
from tidelog.table.port import Freeze, PreparedRows, TableFile

INDEX_NAME = "INDEX"
_CHUNK = re.compile(rb"[0-9a-f]{32}\.rows")

_PRIVATE_BYTES = 64 << 10
"""A table up to this size is stored within the descriptor: one object instead of several."""

_ROWS_PER_CHUNK = 1024
"""Mean number of rows in a chunk of a snapshot."""


class MemoryTable:
    """A dict whose keys are sorted when a scan needs them."""

    def __init__(self) -> None:
        self._rows: dict[bytes, bytes] = {}
        self._keys: list[bytes] | None = []
        self._bytes = 0

    def get(self, key: bytes) -> bytes | None:
        return self._rows.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self._rows.get, keys))

    def write(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        # Paired first, so that unequal columns are refused before any row changes.
        for key, value in list(zip(keys, values, strict=True)):
            old = self._rows.pop(key, None) if value is None else self._rows.get(key)
            if old is not None:
                self._bytes -= len(key) + len(old)
            if value is not None:
                self._rows[key] = value
                self._bytes += len(key) + len(value)
            if (old is None) != (value is None):
                self._keys = None

    def load(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        self.write(keys, values)

    def ingest(self, rows: PreparedRows) -> None:
        self.write(rows.keys, rows.values)

    def scan(self, lower: bytes, upper: bytes | None) -> Iterator[Row]:
        keys = self._sorted_keys()
        end = len(keys) if upper is None else bisect_left(keys, upper)
        view = keys[bisect_left(keys, lower) : end]
        return iter([(key, self._rows[key]) for key in view])

    def columns(self, most_rows: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
        keys = self._sorted_keys()
        for start in range(0, len(keys), most_rows):
            chunk = keys[start : start + most_rows]
            yield chunk, list(map(self._rows.__getitem__, chunk))

    def is_empty(self) -> bool:
        return not self._rows

    def clip(self, lower: bytes, upper: bytes | None) -> None:
        rows = list(self.scan(lower, upper))
        self._rows = dict(rows)
        self._keys = [key for key, _ in rows]
        self._bytes = sum(len(key) + len(value) for key, value in rows)

    def crowded(self) -> bool:
        return False

    def prepare_snapshot(self) -> None:
        """Nothing is slow enough to be done ahead."""

    def freeze(self, directory: Path) -> Freeze:
        rows, shared = self.scan(b"", None), self._bytes > _PRIVATE_BYTES
        return lambda: _lay_out(directory, rows, shared=shared)

    def size_bytes(self) -> int:
        return self._bytes

    def close(self) -> None:
        self._rows = {}
        self._keys = []
        self._bytes = 0

    def _sorted_keys(self) -> list[bytes]:
        if self._keys is None:
            self._keys = sorted(self._rows)
        return self._keys


def _lay_out(directory: Path, rows: Iterator[Row], *, shared: bool) -> list[TableFile]:
    with failures(directory):
        directory.mkdir(parents=True)
        chunks = [_write_chunk(directory, chunk, shared=shared) for chunk in _chunks(rows)]
        index = encode_rows([(chunk.name.encode(), b"") for chunk in chunks])
        return [*chunks, _write(directory / INDEX_NAME, index, shared=False)]


def _chunks(rows: Iterator[Row]) -> Iterator[list[Row]]:
    chunk: list[Row] = []
    for row in rows:
        chunk.append(row)
        if crc32c(row[0]) % _ROWS_PER_CHUNK == 0:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _write_chunk(directory: Path, rows: list[Row], *, shared: bool) -> TableFile:
    data = encode_rows(rows)
    name = hashlib.sha256(data).hexdigest()[:32] + ".rows"
    return _write(directory / name, data, shared=shared)


def _write(path: Path, data: bytes, *, shared: bool) -> TableFile:
    path.write_bytes(data)
    return TableFile(path.name, path, len(data), shared)


class MemoryTableFactory:
    """Opens tables in memory; their directories hold nothing but a snapshot to restore."""

    kind: ClassVar[str] = "memory"
    memtable_bytes: ClassVar[int] = 0
    block_cache_bytes: ClassVar[int] = 0

    def prepare(
        self, directory: Path, keys: Sequence[bytes], values: Sequence[bytes | None]
    ) -> PreparedRows:
        return PreparedRows(keys, values)

    def create(self, directory: Path) -> MemoryTable:
        return MemoryTable()

    serve: ClassVar[None] = None

    def restore(self, directory: Path) -> MemoryTable:
        table = MemoryTable()
        for name, _ in read_rows(directory / INDEX_NAME):
            if not _CHUNK.fullmatch(name):
                raise corrupt(directory / INDEX_NAME, "names of files with rows", repr(name))
            chunk = read_rows(directory / name.decode())
            table.load([key for key, _ in chunk], [value for _, value in chunk])
        return table
