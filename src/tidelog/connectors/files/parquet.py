"""Parquet files: every row is a record.

Invariants: a split is a complete file, or a range of the row groups of a large one, named after its
path; a position is [row group, row in it, rows of the file, mark], so that a restart reads the row
group again from its start and leaves out what it has; the mark is the file's size, and `mark_of`
it; memory is bounded by a batch of rows and the pages that hold it, for each file under way.
"""

import logging
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Final

from tidelog.connectors.arguments import typed
from tidelog.connectors.files.arrow_values import Column, column, values
from tidelog.connectors.files.int96 import check_microseconds, int96_columns
from tidelog.connectors.files.source import (
    InputFile,
    InputFiles,
    check_position,
    failures,
    has_other_size,
)
from tidelog.connectors.tested import note_version
from tidelog.errors import ConfigError, CorruptObjectError, StorageError, optional_library, require
from tidelog.events import Event
from tidelog.options.units import plural
from tidelog.runtime.source import SplitReader
from tidelog.state.schema.row import Row, row_maker

logger = logging.getLogger(__name__)

BATCH_ROWS: Final = 4096

_SPLIT_BYTES: Final = 256 << 20
"""Row groups of a file are dealt out in ranges of about so many bytes. It is no option: the names
of splits, which checkpoints hold, depend on it."""
_PART: Final = re.compile(r"(?P<file>.+)/groups-(?P<first>\d+)-(?P<last>\d+)", re.DOTALL)
"""The name of a range of row groups."""
_MAX_ACTIVE_SPLITS: Final = 8
_BUFFER_BYTES: Final = 256 << 10
"""Bytes that are read ahead of each column."""


class ParquetSource(InputFiles):
    """Rows of Parquet files as `Row`s; files are found as by `TextFileSource`.

    `columns` names those that are read, in this order; without it all are, and all files must
    have the same. A file counts once it is complete: with `follow` new ones are awaited, and one
    without its footer is looked at again. Raises ConfigError.
    """

    max_active_splits = _MAX_ACTIVE_SPLITS

    @typed
    def __init__(
        self,
        path: Path | str,
        include: str = "*.parquet",
        columns: Sequence[str] | None = None,
        *,
        follow: bool = False,
        batch_rows: int = BATCH_ROWS,
    ) -> None:
        super().__init__(path, include, follow=follow)
        require("batch_rows", batch_rows, batch_rows >= 1, "at least 1")
        is_list = columns is None or (bool(columns) and not isinstance(columns, str))
        require("columns", repr(columns), is_list, "a list of names of columns")
        _parquet()
        note_version("pyarrow")
        self._batch_rows = batch_rows
        self._columns = _Columns(None if columns is None else tuple(columns))
        self._complete: dict[str, list[str]] = {}
        """The splits of each file that was complete when it was looked at."""
        self._awaited: set[str] = set()

    def discover(self) -> list[str]:
        """Complete files and ranges of large ones; raises ConfigError, StorageError, and
        CorruptObjectError for a file that is not complete and not followed.
        """
        return [*chain(*map(self._splits, super().discover()))]

    def open(self, split: str, position: Any) -> "ParquetReader":
        """Raises ObjectNotFoundError, StorageError and CorruptObjectError; ConfigError for a file
        whose columns do not fit.
        """
        path, part = self._place_of(split)
        file = _opened(path)
        try:
            groups = range(file.metadata.num_row_groups)
            if part is not None:
                groups = range(int(part["first"]), int(part["last"]) + 1)
            columns = self._columns.of(path, file.schema_arrow)
            return ParquetReader(path, file, groups, columns, position, self._batch_rows)
        except BaseException:
            file.close()
            raise

    def has_more(self, split: str, position: Any) -> bool:
        """Whether a file that was read has another size: it is opened to be refused."""
        path, _ = self._place_of(split)
        return has_other_size(path, position[3][0] if len(position) == 4 else None)

    def _place_of(self, split: str) -> tuple[Path, re.Match[str] | None]:
        """The file of a split, and the part of it that the split is; None: it is the whole file."""
        path = self.locate(split)
        part = None if path.is_file() else _PART.fullmatch(split)
        return (path, None) if part is None else (self.locate(part["file"]), part)

    def _splits(self, name: str) -> list[str]:
        splits = self._complete.get(name)
        if splits is None:
            try:
                file = _opened(self.locate(name))
            except CorruptObjectError as error:
                if not self.follow:
                    raise
                if name not in self._awaited:
                    Event.FILE_NOT_COMPLETE.log(logger, path=self.locate(name), error=error.found)
                self._awaited.add(name)
                return []
            with file:
                splits = self._complete[name] = list(_ranges(name, file.metadata))
            self._awaited.discard(name)
        return splits


class ParquetReader(SplitReader):
    """The rows of a range of row groups, a batch at a time."""

    position: list[Any]

    def __init__(
        self,
        path: Path,
        file: Any,
        groups: range,
        columns: dict[str, Column],
        position: Any,
        batch_rows: int,
    ) -> None:
        self._path = path
        self._file = file
        self._columns = columns
        self._names = tuple(columns)
        self._int96 = int96_columns(file, self._names)
        self._end = groups.stop
        self._batch_rows = batch_rows
        rows = file.metadata.num_rows
        input_file = InputFile(path)
        size = input_file.identity.st_size
        self._mark = [size, *input_file.mark(size)]
        input_file.close()
        self.position = list(position or (groups.start, 0, rows, self._mark))
        fits = len(self.position) == 4 and type(self.position[2]) is int
        check_position(path, fits=fits)
        if self.position[2] != rows:
            raise StorageError(
                f"Parquet file {path}",
                expected=f"{plural(self.position[2], 'row')}, as many as when it was first read",
                found=f"{rows}",
                action="put the file back that was read before; files must not change while a job "
                "reads them",
                retry_safe=False,
            )
        if list(self.position[3]) != self._mark:
            raise input_file.written_anew()
        self._batches: Iterator[Any] | None = None

    @property
    def at_end(self) -> bool:  # type: ignore[override]  # computed here
        return int(self.position[0]) >= self._end

    def read(self) -> list[Any] | None:
        """The rows of the next batch; raises CorruptObjectError and StorageError."""
        if self.at_end:
            return None
        group, row, rows = self.position[:3]
        with _readable(self._path):
            if self._batches is None:
                self._batches = self._batches_of(group, row)
            batch = next(self._batches, None)
            if batch is None:
                self._batches = None
                self.position = [group + 1, 0, rows, self._mark]
            else:
                self.position = [group, row + batch.num_rows, rows, self._mark]
            records = [] if batch is None else self._rows(batch)
        self.read_bytes = 0 if batch is None else batch.nbytes
        if self.at_end:
            self.close()
        return records

    def close(self) -> None:
        self._batches = None
        self._file.close()

    def _batches_of(self, group: int, skipped: int) -> Iterator[Any]:
        for path in self._int96:
            try:
                check_microseconds(self._path, group, path, self._batch_rows)
            except ValueError as error:
                raise self._unfit(path, "times", error) from error
        batches = self._file.iter_batches(
            self._batch_rows, row_groups=[group], columns=list(self._names), use_threads=False
        )
        for batch in batches:
            if skipped >= batch.num_rows:
                skipped -= batch.num_rows
            else:
                yield batch.slice(skipped)
                skipped = 0

    def _rows(self, batch: Any) -> list[Row]:
        names, column_values = self._names, []
        for name, kind in self._columns.items():
            try:
                column_values.append(values(batch.column(batch.schema.get_field_index(name)), kind))
            except (ValueError, OverflowError) as error:
                raise self._unfit(
                    name, f"values that fit {kind.kind} in Python, times", error
                ) from error
        if not column_values:
            return [Row.of((), ())] * batch.num_rows
        return list(map(row_maker(names), zip(*column_values, strict=True)))

    def _unfit(self, column: str, expected: str, error: Exception) -> CorruptObjectError:
        return CorruptObjectError(
            f"Parquet file {self._path}, column {column!r}",
            expected=f"{expected} to the microsecond",
            found=str(error),
            action="leave the column out with columns=, or write it otherwise",
        )


class _Columns:
    """Which columns are read, and that all files have them alike."""

    def __init__(self, names: tuple[str, ...] | None) -> None:
        self._names = names
        self._first: Path | None = None
        self._expected: dict[str, tuple[Path, Column]] = {}
        """The first file that has values in the column, or the first one, and what it holds."""
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process begins with the names alone."""
        return type(self), (self._names,)

    def of(self, path: Path, schema: Any) -> dict[str, Column]:
        """The columns of a file, by name; raises ConfigError when they do not fit."""
        schema_names = [field.name for field in schema]
        if len(set(schema_names)) < len(schema_names):
            raise _unfit(path, "columns of different names", f"{schema_names}", "rename them")
        columns = {name: self._column(path, schema, name) for name in self._names or schema_names}
        with self._lock:
            if self._first is None:
                self._first = path
                self._expected = {name: (path, column) for name, column in columns.items()}
            expected, first = self._expected, self._first
            for name in {**expected, **columns}:
                where, reference = expected.get(name, (first, None))
                actual = columns.get(name)
                both = reference.common(actual) if actual and reference else None
                if reference is None or both is None:
                    raise _unfit(
                        path,
                        f"column {name!r} as in {where}: {_shown(reference)}",
                        _shown(actual),
                        "name the columns that all files have in columns=, or read these files by "
                        "a source of their own",
                    )
                if both.kind != reference.kind:
                    expected[name] = path, both
        return {name: columns[name] for name in expected}

    @staticmethod
    def _column(path: Path, schema: Any, name: str) -> Column:
        index = schema.get_field_index(name)
        if index < 0:
            action = "correct columns=, or leave the file out with include="
            raise _unfit(path, f"a column {name!r}", f"{schema.names}", action)
        kind = schema.field(index).type
        file_column = column(kind)
        if file_column is None:
            expected = f"a type for column {name!r} that records can carry"
            raise _unfit(path, expected, str(kind), "leave it out with columns=")
        return file_column


def _shown(column: Column | None) -> str:
    return "no such column" if column is None else column.kind


def _unfit(path: Path, expected: str, found: str, action: str) -> ConfigError:
    return ConfigError(f"Parquet file {path}", expected=expected, found=found, action=action)


def _ranges(name: str, metadata: Any) -> Iterator[str]:
    """The splits of a file: itself, or its row groups in ranges."""
    sizes = [metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)]
    if sum(sizes) <= _SPLIT_BYTES:
        yield name
        return
    first, size_bytes = 0, 0
    for group, size in enumerate(sizes):
        size_bytes += size
        if size_bytes >= _SPLIT_BYTES or group == len(sizes) - 1:
            # No file is called so, as there is nothing below a file: see `_PART`.
            yield f"{name}/groups-{first}-{group}"
            first, size_bytes = group + 1, 0


def _opened(path: Path) -> Any:
    """A Parquet file; raises CorruptObjectError for one without a footer."""
    with _readable(path):
        return _parquet().ParquetFile(
            str(path),
            pre_buffer=False,  # it would hold a whole row group
            buffer_size=_BUFFER_BYTES,
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=True,  # where the writer left some
        )


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turns what the library reports into errors that name the file."""
    with failures(path):
        try:
            yield
        except (OSError, import_module("pyarrow").ArrowException) as error:
            if getattr(error, "errno", None) is not None:
                raise  # the system's own
            raise CorruptObjectError(
                f"Parquet file {path}",
                expected="a complete Parquet file, with its footer",
                found=" ".join(str(error).split()),
                action="put the complete file there; write files elsewhere, or under a name with a "
                "dot in front, and rename them when they are complete",
            ) from error


def _parquet() -> Any:
    with optional_library("a Parquet source", "the library pyarrow", "parquet"):
        return import_module("pyarrow.parquet")
