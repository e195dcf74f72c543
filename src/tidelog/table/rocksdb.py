"""A table in RocksDB: ordered, larger than memory, with snapshots that share files.

Invariants: nothing is written to a WAL, so what is not in an SST file dies with the process and
the log replays it. Scans check the iterator's status, because a RocksDB iterator ends silently at
a damaged block. A snapshot is the live SST files (hard links, shared, immutable) and one small
SNAPSHOT file, which packs RocksDB's own CURRENT and MANIFEST with the sizes of the SST files under
a CRC: RocksDB by itself opens a MANIFEST with a torn last record without complaint, as if that
record had never been written.
"""

import ctypes
import logging
import os
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from threading import Lock
from typing import ClassVar, cast
from weakref import WeakSet

from rocksdict import (
    Checkpoint,
    IngestExternalFileOptions,
    Rdict,
    RdictIter,
    ReadOptions,
    SstFileWriter,
    WriteBatch,
    WriteOptions,
)

from tidelog.errors import ConfigError
from tidelog.events import Event
from tidelog.table.failures import corrupt, failures, translate
from tidelog.table.frame import Row, encode_rows, read_rows
from tidelog.table.port import Freeze, PreparedRows, TableFile
from tidelog.table.rocksdict_options import TableOptions

logger = logging.getLogger(__name__)

_SIZE_PROPERTIES = ("rocksdb.estimate-live-data-size", "rocksdb.cur-size-all-mem-tables")

_INGEST_ROWS = 32 << 10
"""From this batch size on, writing an SST file beside the memtable is the cheaper load."""
_ROWS_BETWEEN_SIZE_CHECKS = 8192

SNAPSHOT_NAME = "SNAPSHOT"
_SST_SUFFIX = ".sst"
_NAME = re.compile(rb"CURRENT|MANIFEST-\d+|\d+\.sst")


class Process:
    """Whether RocksDB can work in this process."""

    is_used = False
    """A table was opened, for which RocksDB has begun threads that live as long as the process."""
    has_no_threads = False
    """The process was forked from one with open tables: RocksDB would wait for ever for threads."""
    tables: ClassVar["WeakSet[RocksTable]"] = WeakSet()

    @classmethod
    def forked(cls) -> None:
        """Let the process end as any other: RocksDB would flush and close, and wait for threads."""
        if not cls.is_used or cls.has_no_threads:
            return
        cls.has_no_threads = True
        for table in cls.tables:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(table._db))  # so it is never dropped
        # What C++ calls after Python's end crashes: the process ends before, with the status that
        # it has, for which only glibc has a call.
        libc = ctypes.CDLL(None)
        if hasattr(libc, "on_exit"):
            libc.on_exit(libc._exit, None)

    @classmethod
    def check(cls) -> None:
        if cls.has_no_threads:
            raise ConfigError(
                "a table of kind 'rocksdb'",
                expected="a process that was not forked from one that has had such a table open",
                found="one that was, where RocksDB has no threads",
                action="have the process spawned (multiprocessing.get_context('spawn')), or open "
                "databases and views in the children alone, or choose tables of kind 'memory'",
            )
        cls.is_used = True


os.register_at_fork(after_in_child=Process.forked)


class RocksTable:
    """One RocksDB database without a WAL."""

    def __init__(self, directory: Path, options: TableOptions) -> None:
        self._directory = directory
        self._options = options
        families = None if options.rows is options.database else {"default": options.rows}
        self._db = Rdict(str(directory), options.database, families)
        # rocksdict refuses to close a database that is being flushed: close waits instead.
        self._flushing = Lock()
        self._write_options = WriteOptions()
        # A property at run time, whatever rocksdict's stub says.
        self._write_options.disable_wal = True  # type: ignore[assignment, method-assign]

    def get(self, key: bytes) -> bytes | None:
        try:
            return cast("bytes | None", self._db.get(key))
        except Exception as error:
            raise translate(error, self._directory) from error

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        try:
            values = self._db.get(keys if isinstance(keys, list) else list(keys))
        except Exception as error:
            raise translate(error, self._directory) from error
        return cast("list[bytes | None]", values)

    def write(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, value in zip(keys, values, strict=True):
            if value is None:
                delete(key)
            else:
                put(key, value)
        try:
            self._db.write(batch, self._write_options)
        except Exception as error:
            raise translate(error, self._directory) from error

    def load(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        with failures(self._directory):
            rows = prepare(self._options, self._directory / "load", keys, values)
        self.ingest(rows)

    def ingest(self, rows: PreparedRows) -> None:
        if not rows.files:
            self.write(rows.keys, rows.values)
            return
        with failures(self._directory):
            how = IngestExternalFileOptions()
            how.set_move_files(True)
            # In one step, and newer than everything written before: as atomic as a batch.
            self._db.ingest_external_file(list(map(str, rows.files)), how)

    def scan(self, lower: bytes, upper: bytes | None) -> Iterator[Row]:
        options = ReadOptions()
        if upper is not None:
            options.set_iterate_upper_bound(upper)
        try:
            cursor = self._db.iter(options)
            cursor.seek(lower)
        except Exception as error:
            raise translate(error, self._directory) from error
        return self._rows(cursor, options)

    def _rows(self, cursor: RdictIter, _bound: ReadOptions) -> Iterator[Row]:
        # RocksDB keeps a pointer into the read options' bound: they live as long as the cursor.
        valid, key, value, advance = cursor.valid, cursor.key, cursor.value, cursor.next
        while valid():
            yield key(), value()
            advance()
        try:
            cursor.status()
        except Exception as error:
            raise translate(error, self._directory) from error

    def columns(self, most_rows: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
        options = ReadOptions()
        # What is read once must not push out of the cache what is read again.
        options.fill_cache(False)  # type: ignore[call-arg]  # A fault of rocksdict's stub.
        with failures(self._directory):
            # Flat, so that no function of Python is called for a row.
            cells = chain.from_iterable(self._db.items(read_opt=options))
            after = b""
            while chunk := list(islice(cells, 2 * most_rows)):
                keys = chunk[::2]
                yield keys, chunk[1::2]
                after = keys[-1] + b"\0"
            # Like a cursor, items end silently at a damaged block: looking for more tells.
            cursor = self._db.iter(options)
            cursor.seek(after)
            cursor.status()
        if cursor.valid():
            raise corrupt(
                self._directory, "all rows in one pass", f"an end before {cursor.key()!r}"
            )

    def is_empty(self) -> bool:
        return next(self.scan(b"", None), None) is None

    def clip(self, lower: bytes, upper: bytes | None) -> None:
        # A range that is empty gets no tombstone, which every later scan would have to pass.
        with failures(self._directory):
            cursor = self._db.iter()
            cursor.seek_to_first()
            if cursor.valid() and cursor.key() < lower:
                self._db.delete_range(b"", lower, self._write_options)
            cursor.seek_to_last()
            if upper is not None and cursor.valid() and (last := cursor.key()) >= upper:
                self._db.delete_range(upper, last + b"\0", self._write_options)
            cursor.status()

    def crowded(self) -> bool:
        # RocksDB's own remedy would stop the event loop until the disk has them.
        memtables = self._options.memtables
        return memtables.get_usage() > memtables.get_buffer_size()

    def prepare_snapshot(self) -> None:
        with failures(self._directory), self._flushing:
            self._db.flush()

    def freeze(self, directory: Path) -> Freeze:
        with failures(directory):
            directory.parent.mkdir(parents=True, exist_ok=True)
            Checkpoint(self._db).create_checkpoint(str(directory))
        return lambda: pack(directory)

    def size_bytes(self) -> int:
        with failures(self._directory):
            return sum(self._db.property_int_value(name) or 0 for name in _SIZE_PROPERTIES)

    def close(self) -> None:
        # RocksDB flushes first, which a full disk refuses: a table needs no durability of its own,
        # and a caller that closes it after a failure has a better error to tell.
        with self._flushing:
            try:
                self._db.close()
            except Exception as error:
                Event.TABLE_NOT_CLOSED.log(logger, directory=self._directory, error=error)


def prepare(
    options: TableOptions, directory: Path, keys: Sequence[bytes], values: Sequence[bytes | None]
) -> PreparedRows:
    """Sorted, distinct rows; many become SST files under `directory`, which the table adopts."""
    if len(keys) < _INGEST_ROWS:
        return PreparedRows(keys, values)
    directory.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    start = 0
    while start < len(keys):
        paths.append(directory / f"{start}.sst")
        writer = SstFileWriter(options.rows)
        writer.open(str(paths[-1]))
        while start < len(keys) and writer.file_size() < options.target_file_bytes:
            end = start + _ROWS_BETWEEN_SIZE_CHECKS
            _append(writer, keys[start:end], values[start:end])
            start = end
        writer.finish()
    return PreparedRows(files=paths)


def _append(writer: SstFileWriter, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
    for key, value in zip(keys, values, strict=True):
        if value is None:
            del writer[key]
        else:
            writer[key] = value


def pack(directory: Path) -> list[TableFile]:
    """Turn RocksDB's checkpoint directory into SST files and one SNAPSHOT file."""
    with failures(directory):
        files: list[TableFile] = []
        rows: list[Row] = []
        for path in sorted(directory.iterdir()):
            if path.suffix == _SST_SUFFIX:
                size = path.stat().st_size
                files.append(TableFile(path.name, path, size, shared=True))
                rows.append((path.name.encode(), str(size).encode()))
                continue
            if path.name == "CURRENT" or path.name.startswith("MANIFEST-"):
                rows.append((path.name.encode(), path.read_bytes()))
            # The rest (options, empty logs) is written anew when the table opens.
            path.unlink()
        snapshot = directory / SNAPSHOT_NAME
        size = snapshot.write_bytes(encode_rows(rows))
        return [*files, TableFile(SNAPSHOT_NAME, snapshot, size, shared=False)]


def unpack(directory: Path) -> None:
    """Undo `pack`; raises CorruptObjectError when a file is missing or has another size."""
    snapshot = directory / SNAPSHOT_NAME
    for name, content in read_rows(snapshot):
        if not _NAME.fullmatch(name):
            # A name with directories in it would be written wherever it points to.
            raise corrupt(snapshot, "names of RocksDB's files", repr(name))
        path = directory / name.decode()
        if path.suffix != _SST_SUFFIX:
            path.write_bytes(content)
            continue
        size = path.stat().st_size if path.exists() else None
        if str(size).encode() != content:
            raise corrupt(
                path,
                f"{content.decode(errors='replace')} bytes",
                "no such file" if size is None else f"{size} bytes",
            )
    snapshot.unlink()
