"""A RocksDB table that serves while its files still arrive.

RocksDB is opened from its MANIFEST over placeholders (`holes`). A read that meets a hole ends in an
error of RocksDB, which names the place; what belongs there is fetched and written, and the read is
made again. RocksDB keeps no bad block.

Invariants:
- a read answers what a whole table would answer, or raises: holes cost time alone;
- what is bad again after it was fetched is damage, and is raised as such;
- writes and flushes read no file, so they meet no hole; no file is compacted until all are whole:
  until then the files that flushes make are counted, and writers have to wait when they are many.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar, cast

from rocksdict import ReadOptions, Snapshot

from tidelog.errors import TidelogError
from tidelog.events import Event
from tidelog.table.failures import failures, translate
from tidelog.table.frame import Row
from tidelog.table.holes import ANYWHERE, Gaps, Hole, Holes, hole_of
from tidelog.table.port import PreparedRows
from tidelog.table.rocksdb import RocksTable
from tidelog.table.rocksdict_options import STALLS, TableOptions

T = TypeVar("T")

logger = logging.getLogger(__name__)

_KEYS_TOGETHER: Final = 64
"""Keys that are looked up together where those before them have met no hole."""

READ_AHEAD: Final = 256 << 10
"""Bytes that a scan fetches from its first hole on; twice as many at each further one, ..."""
READ_AHEAD_LIMIT: Final = 1 << 20
"""... up to so many."""
LEVEL0_GROWTH: Final = 4
"""Writers wait when so many times `level0_files` were flushed: each read looks into all of them."""


class HydratingTable(RocksTable):
    """A RocksDB table whose reads fill the holes that they meet."""

    def __init__(self, directory: Path, options: TableOptions, holes: Holes) -> None:
        super().__init__(directory, options)
        self._holes = holes
        self._is_whole = False
        self._is_closed = False
        self._level0_limit: int | None = None
        """The files of level 0 at which writers wait; None until a writer has come."""
        self._are_stalls_raised = False
        """RocksDB slows writers down at more files than the options say."""
        self._has_logged = False
        """Whether the log has `table_fetched_whole`: it is there once for a table."""

    def get(self, key: bytes) -> bytes | None:
        try:
            return cast("bytes | None", self._db.get(key))
        except Exception as error:
            return cast("bytes | None", self._read(lambda: self._db.get(key), error))

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        listed = keys if isinstance(keys, list) else list(keys)
        try:
            return cast("list[bytes | None]", self._db.get(listed))
        except Exception:
            # The error names the first hole; all of them are filled side by side.
            filling = _Filling(self._holes, self._directory)
            gaps = self.gaps(listed)
            while gaps.holes and ANYWHERE not in gaps.holes:
                filling.fill_all(gaps.holes)
                gaps = self.gaps(gaps.keys)
        return cast("list[bytes | None]", self._read(lambda: self._db.get(listed)))

    def gaps(
        self, keys: list[bytes], ranges: Sequence[tuple[bytes, bytes]] = (), rows: int = 1
    ) -> Gaps:
        holes: dict[Hole, None] = {}
        unread_keys: list[bytes] = []
        unread_ranges: list[tuple[bytes, bytes]] = []
        get, meets = cast("Callable[[object], object]", self._db.get), True
        for start in range(0, len(keys), _KEYS_TOGETHER):
            chunk = keys[start : start + _KEYS_TOGETHER]
            # An error costs as much for many keys as for one, and says what only one of them lacks.
            if not meets and self._hole_met(partial(get, chunk)) is None:
                continue
            meets = False
            for key in chunk:
                if hole := self._hole_met(partial(get, key)):
                    meets = True
                    holes[hole] = None
                    unread_keys.append(key)
        for bounds in ranges:
            if hole := self._hole_met(partial(self._look, *bounds, rows)):
                holes[hole] = None
                unread_ranges.append(bounds)
        return Gaps(unread_keys, unread_ranges, list(holes))

    def _hole_met(self, read: Callable[[], object]) -> Hole | None:
        try:
            read()
        except Exception as error:
            hole = hole_of(error)
            if hole is ANYWHERE:
                hole = None if self._is_whole else hole
                self._log_unknown(error)
            # Nobody waits any more for what is fetched ahead when the table is closed.
            if hole is None and not self._is_closed:
                raise translate(error, self._directory) from error
            return hole
        return None

    def _log_unknown(self, error: Exception) -> None:
        if not (self._is_whole or self._has_logged):
            self._has_logged = True
            Event.TABLE_FETCHED_WHOLE.log(logger, error=error)

    def _look(self, lower: bytes, upper: bytes, rows: int) -> None:
        options = ReadOptions()
        options.set_iterate_upper_bound(upper)
        cursor = self._db.iter(options)
        cursor.seek(lower)
        while cursor.valid() and rows > 0:
            cursor.next()
            rows -= 1
        cursor.status()

    def ingest(self, rows: PreparedRows) -> None:
        # RocksDB looks for the level of the new files, and reads a block or two for it.
        self._read(lambda: RocksTable.ingest(self, rows))

    def scan(self, lower: bytes, upper: bytes | None) -> Iterator[Row]:
        if self._is_whole:
            return super().scan(lower, upper)
        with failures(self._directory):
            return self._scanned(self._db.snapshot(), lower, upper)

    def _scanned(self, view: Snapshot, lower: bytes, upper: bytes | None) -> Iterator[Row]:
        """The rows as the table has them in `view`; after a hole a new cursor continues."""
        filling, ahead = _Filling(self._holes, self._directory), READ_AHEAD
        while True:
            options, last = ReadOptions(), None
            if upper is not None:
                options.set_iterate_upper_bound(upper)
            try:
                cursor = view.iter(options)
                cursor.seek(lower)
                valid, key, value, advance = cursor.valid, cursor.key, cursor.value, cursor.next
                while valid():
                    last = key()
                    yield last, value()
                    advance()
                cursor.status()
                return
            except Exception as error:
                filling.fill(error, ahead)
            ahead = min(2 * ahead, READ_AHEAD_LIMIT)
            lower = lower if last is None else last + b"\0"

    def columns(self, most_rows: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
        if self._is_whole:
            yield from super().columns(most_rows)
            return
        rows = self.scan(b"", None)
        while chunk := list(islice(rows, most_rows)):
            yield [key for key, _ in chunk], [value for _, value in chunk]

    def clip(self, lower: bytes, upper: bytes | None) -> None:
        self._read(self._look_at_ends)
        super().clip(lower, upper)

    def _look_at_ends(self) -> None:
        """Read what `clip` reads, which would take a hole for the end of the table."""
        cursor = self._db.iter()
        cursor.seek_to_first()
        cursor.status()
        cursor.seek_to_last()
        cursor.status()

    def is_empty(self) -> bool:
        return False  # nobody has looked; a table with files has rows, but for deleted ones

    def is_stalled(self) -> bool:
        if self._is_whole or self._is_closed:
            return False
        files = self._level0()
        if self._level0_limit is None:
            # Not of what the table came with: a start that can handle no record has no use.
            self._level0_limit = files + LEVEL0_GROWTH * self._options.level0_files
        return files >= self._level0_limit

    def _level0(self) -> int:
        """The files of level 0: those that flushes made, and no compaction has taken."""
        with failures(self._directory):
            return self._db.property_int_value("rocksdb.num-files-at-level0") or 0

    def whole(self) -> None:
        with failures(self._directory), self._flushing:
            if not self._is_closed:
                # RocksDB lets writes wait for compactions, with the interpreter's lock: the whole
                # process would stand still until what has gathered is compacted.
                self._set_stalls(self._level0(), disable_auto_compactions="false")
                self._are_stalls_raised = True
        self._is_whole = True

    def _set_stalls(self, gathered: int, **more: str) -> None:
        """Let RocksDB slow writes down when so many files are gathered and the usual number."""
        slow, stop = (gathered + times * self._options.level0_files for times in STALLS)
        self._db.set_options(
            {
                "level0_slowdown_writes_trigger": str(slow),
                "level0_stop_writes_trigger": str(stop),
                **more,
            }
        )

    def prepare_snapshot(self) -> None:
        super().prepare_snapshot()
        with failures(self._directory), self._flushing:
            is_raised = self._are_stalls_raised and not self._is_closed
            if is_raised and self._level0() <= self._options.level0_files:
                self._set_stalls(0)
                self._are_stalls_raised = False

    def close(self) -> None:
        self._is_closed = True
        super().close()

    def _read(self, read: Callable[[], T], met: Exception | None = None) -> T:
        """What `read` returns once all holes that it meets are filled; `met` is the first error."""
        filling = _Filling(self._holes, self._directory)
        if met is not None:
            filling.fill(met)
        while True:
            try:
                return read()
            except Exception as error:
                filling.fill(error)


class _Filling:
    """Fills the holes that one read meets, each of them once."""

    def __init__(self, holes: Holes, directory: Path) -> None:
        self._holes = holes
        self._directory = directory
        self._filled: set[Hole] = set()

    def fill(self, error: Exception, ahead: int = 0) -> None:
        """Fill the hole that an error tells of; raises what else it tells of."""
        if isinstance(error, TidelogError) and isinstance(error.__cause__, Exception):
            error = error.__cause__
        hole = hole_of(error)
        if hole is None:
            raise translate(error, self._directory) from error
        if hole in self._filled:
            damage = self._holes.damage(hole, str(error))
            raise damage or translate(error, self._directory) from error
        self._filled.add(hole)
        if hole is ANYWHERE:
            Event.TABLE_FETCHED_WHOLE.log(logger, error=error)
        self._holes.fill([hole], ahead)

    def fill_all(self, holes: list[Hole]) -> None:
        """Fill holes side by side; raises for one that was filled before."""
        for hole in self._filled.intersection(holes):
            problem = f"a bad part of {hole.file} at {hole.offset}"
            local = translate(Exception(f"Corruption: {problem}"), self._directory)
            raise self._holes.damage(hole, problem) or local
        self._filled.update(holes)
        self._holes.fill(holes, 0)


def opened(
    open_table: Callable[[], HydratingTable], holes: Holes, directory: Path
) -> HydratingTable:
    """The table, once what RocksDB reads as it opens it is there."""
    filling = _Filling(holes, directory)
    while True:
        try:
            return open_table()
        except Exception as error:
            filling.fill(error)
