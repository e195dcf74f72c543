"""Files of comma-separated values, as RFC 4180 has them and Python's csv module reads them.

Invariants: a record ends with a line, and is what stands between two offsets at which a restart may
go on, so what is read does not depend on where a chunk ended; a quoted value may have line breaks;
each record has a value for each column; a blank line is no record.
"""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from io import BytesIO, StringIO
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from tidelog.connectors.arguments import typed
from tidelog.connectors.files.line_reader import CHUNK_BYTES, MAX_LINE_BYTES, without_mark
from tidelog.connectors.files.parsed import Malformed, OnError, ParsedFiles, ParsedReader
from tidelog.credentials import value_text
from tidelog.errors import ConfigError, require
from tidelog.options.units import plural
from tidelog.runtime.user_code import FAILURES, map_all
from tidelog.state.schema.row import Row, row_maker

Parse = Callable[[str], Any]


def _boolean(text: str) -> bool:
    try:
        return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
    except KeyError:
        raise ValueError("neither true, 1, false nor 0") from None


_PARSERS: Final[dict[Any, Parse]] = {
    bool: _boolean,
    date: date.fromisoformat,
    datetime: datetime.fromisoformat,
    time: time.fromisoformat,
}
"""Types whose constructors do not read texts."""
_HEADER_BYTES: Final = 4096
"""Bytes of a file that are read at first for its header."""


_NO_QUOTE: Final = Malformed("the quote that ends a value", "the end of the file")


class CsvSource(ParsedFiles):
    """Records of CSV files as `Row`s; files are found and read as by `TextFileSource`.

    The names of the columns are those in the first line of each file, or `header` lists them for
    files without such a line. `schema` says by the names of columns what their texts become: int,
    float, bool, Decimal, date, datetime, time, UUID or any function of a text; an empty one is
    None then. Other columns are texts. A malformed record stops the job, or is left out, counted
    and logged when `on_error` is "skip". A value in double quotes may hold line breaks;
    `max_line_bytes` limits a whole record. Sizes are in bytes. Raises ConfigError.
    """

    @typed
    def __init__(
        self,
        path: Path | str,
        include: str = "*.csv",
        schema: Mapping[str, Any] | None = None,
        *,
        delimiter: str = ",",
        header: Literal[True] | Sequence[str] = True,
        on_error: OnError = "fail",
        follow: bool = False,
        chunk_bytes: int = CHUNK_BYTES,
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        super().__init__(
            path,
            include,
            on_error=on_error,
            follow=follow,
            chunk_bytes=chunk_bytes,
            max_line_bytes=max_line_bytes,
        )
        valid = isinstance(delimiter, str) and len(delimiter) == 1 and delimiter not in '"\r\n'
        require("delimiter", repr(delimiter), valid, 'one character, such as "," or "\\t"')
        self.delimiter = delimiter
        kinds = dict(schema or {})
        require("schema", repr(schema), all(map(callable, kinds.values())), "types by column names")
        self.parsers = {
            name: _PARSERS.get(kind, kind) for name, kind in kinds.items() if kind is not str
        }
        self.schema_names = frozenset(kinds)
        self.columns: _Columns | None = None
        """The columns of all files; None where each file has a header."""
        if header is not True:
            names = () if isinstance(header, str) else tuple(header)
            valid = 0 < len(names) == len(set(names)) and self.schema_names.issubset(names)
            require("header", repr(header), valid, "different names, among them those of schema=")
            self.columns = _Columns(names, self.parsers)

    def open(self, split: str, position: Any) -> "CsvReader":
        """Raises ObjectNotFoundError and StorageError."""
        return CsvReader(self, split, position)


class _UnfitError(Exception):
    """A record that does not fit the columns."""

    def __init__(self, problem: Malformed) -> None:
        self.problem = problem


class _Columns:
    """The columns of a file, and what makes rows of the texts in them."""

    def __init__(self, names: tuple[str, ...], parsers: Mapping[str, Parse]) -> None:
        self._names = names
        self._row_of = row_maker(names)
        self._parsers = [(names.index(name), parse) for name, parse in parsers.items()]

    def rows(self, records: list[list[str]]) -> list[Row]:
        """Rows of many records, column by column; raises whatever says that one does not fit."""
        if [] in records:
            records = list(filter(None, records))
        if not records:
            return []
        if set(map(len, records)) != {len(self._names)}:
            raise ValueError
        if not self._parsers:
            return list(map(self._row_of, records))
        columns: list[Sequence[Any]] = list(zip(*records, strict=True))
        for index, parse in self._parsers:
            texts = columns[index]
            if "" in texts:
                columns[index] = [parse(text) if text else None for text in texts]
            else:
                columns[index] = map_all(parse, texts)
        return list(map(self._row_of, zip(*columns, strict=True)))

    def row(self, record: list[str]) -> Row:
        """Raises _UnfitError."""
        if len(record) != len(self._names):
            found = f"{plural(len(record), 'value')}: {value_text(record, 100)}"
            raise _UnfitError(
                Malformed(f"{plural(len(self._names), 'value')}, of {self._names}", found)
            )
        values: list[Any] = list(record)
        for index, parse in self._parsers:
            try:
                values[index] = parse(record[index]) if record[index] else None
            except FAILURES as error:  # what a function of the user raises
                kind = getattr(parse, "__qualname__", repr(parse)).removeprefix("_")
                expected = f"a text that {kind} reads, as schema= says, or none"
                found = f"{record[index]!r:.100}: {error}"
                raise _UnfitError(Malformed(expected, found, self._names[index])) from error
        return self._row_of(values)


class _IncompleteError(Exception):
    """The data end within a record."""


class _Record(NamedTuple):
    """The texts of a record, and in how many lines it is."""

    texts: list[str]
    lines: int


class CsvReader(ParsedReader):
    """The records of one file as rows."""

    left_out = "left out, as no record of the columns"
    _source: CsvSource

    def __init__(self, source: CsvSource, split: str, position: Any) -> None:
        super().__init__(source, split, position)
        self._columns = source.columns
        self._header_end = 0
        # A limit of the whole process, which is 128 KiB otherwise.
        csv.field_size_limit(max(csv.field_size_limit(), source.longest))

    def records(self, data: bytes, offset: int, *, last: bool) -> tuple[list[Row], int]:
        """Raises CorruptObjectError for a malformed record, unless those are skipped, and
        ConfigError for a header that does not fit.
        """
        columns = self._columns
        if columns is None:
            columns = self._columns = self._columns_of_file()
        if columns is None:  # not even a header
            return [], len(data) if last else 0
        header = max(0, min(self._header_end - offset, len(data)))
        data = data[header:]
        length = len(data) if last else data.rfind(b"\n") + 1
        data = data[:length]
        try:
            text = StringIO(data.decode(), newline="\n")
            return columns.rows(list(self._parsed(text))), header + length
        except FAILURES:  # which record it is, and why, is found below
            rows, length = self._one_by_one(columns, data, offset + header, last=last)
            return rows, header + length

    def _one_by_one(
        self, columns: _Columns, data: bytes, offset: int, *, last: bool
    ) -> tuple[list[Row], int]:
        rows: list[Row] = []
        lines, number, start = BytesIO(data).readlines(), 0, 0
        while number < len(lines):
            count = 1  # of what is no record only the first line is left out
            try:
                record = self._record(lines, number)
                count = record.lines
                if record.texts:
                    rows.append(columns.row(record.texts))
            except _IncompleteError:
                if not last:
                    break
                self.malformed(offset + start, _NO_QUOTE)
            except _UnfitError as error:
                self.malformed(offset + start, error.problem)
            except (csv.Error, UnicodeDecodeError) as error:
                problem = Malformed("values in UTF-8, quoted as in RFC 4180", str(error))
                self.malformed(offset + start, problem)
            start += sum(map(len, lines[number : number + count]))
            number += count
        return rows, start

    def _record(self, lines: list[bytes], number: int) -> _Record:
        """The record that begins in a line."""

        def texts() -> Iterator[str]:
            yield from map(bytes.decode, islice(lines, number, None))
            raise _IncompleteError

        parsed = self._parsed(texts())
        return _Record(next(parsed), parsed.line_num)

    def _parsed(self, lines: Any) -> Any:
        return csv.reader(lines, delimiter=self._source.delimiter, strict=True)

    def _columns_of_file(self) -> _Columns | None:
        """The columns that the file's header names; None where it has no header yet."""
        text, size = self.new_text(None), _HEADER_BYTES
        while True:
            data = text.read(0, size)
            last = len(data) < size
            header, begin = without_mark(data)
            lines = BytesIO(header).readlines()
            if not last and not data.endswith(b"\n"):
                lines.pop()
            blank = next((n for n, line in enumerate(lines) if line.strip(b"\r\n")), len(lines))
            begin += sum(map(len, lines[:blank]))
            try:
                record = self._record(lines, blank)
            except _IncompleteError:
                if last and blank < len(lines) and not self._source.follow:
                    raise self.corrupt(begin, _NO_QUOTE) from None
                if last or size > self._source.longest:
                    return None
                size *= 2
            except (csv.Error, UnicodeDecodeError) as error:
                expected = "a header in UTF-8, quoted as in RFC 4180"
                raise self.corrupt(begin, Malformed(expected, str(error))) from error
            else:
                if self._source.follow and not lines[blank + record.lines - 1].endswith(b"\n"):
                    return None
                self._header_end = begin + sum(map(len, lines[blank : blank + record.lines]))
                return self._named(tuple(record.texts))

    def _named(self, names: tuple[str, ...]) -> _Columns:
        required = self._source.schema_names
        if len(set(names)) < len(names) or not required.issubset(names):
            among = f", among them {sorted(required)} of schema=" if required else ""
            raise ConfigError(
                f"input file {self._path}, header",
                expected="different names of columns" + among,
                found=f"{names}",
                action="correct the header, schema= or delimiter=; for a file without a header "
                "pass header=[names]",
            )
        return _Columns(names, self._source.parsers)
