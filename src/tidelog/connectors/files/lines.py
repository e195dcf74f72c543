"""Files that are read by lines: text, and JSON lines.

Invariants: text lines are the bytes between newlines, decoded as UTF-8 with a replacement character
for what is not, which is counted and logged; a carriage return before a newline belongs to it, and
a byte order mark to no line. A JSON line is an object and becomes a `Row`, nested objects rows,
arrays lists; it stands for itself, so that what is read does not depend on where a chunk ended;
blank lines are no records.
"""

import re
from contextlib import suppress
from typing import Any, Final

import msgspec

from tidelog.connectors.files.line_reader import LineFiles, LineReader
from tidelog.connectors.files.parsed import Malformed, ParsedFiles, ParsedReader
from tidelog.errors import CorruptObjectError
from tidelog.state.schema.row import Row, row_maker

_decoder: Final = msgspec.json.Decoder(dict[str, Any])
_MARK_BYTES: Final = 3
"""The most that stands before the first line: a byte order mark."""
_MALFORMED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class TextFileSource(LineFiles):
    """Lines of files as `str`, without their newlines (`\\n` or `\\r\\n`).

    `path` is a file, or a directory with all files below it that match the glob `include`: it
    is compared with the file name, or with the end of the path when it holds a `/`. Hidden
    files and linked directories are left out. Each file is read up to the size it had when the
    job opened it. With `follow` the input never ends: files may grow and new ones appear,
    and a line counts once its newline is there. Files whose names end in `.gz` or `.zst` are
    decompressed; they must be complete when they appear. Sizes are in bytes. Raises ConfigError.
    """

    def open(self, split: str, position: Any) -> "TextReader":
        """Raises ObjectNotFoundError and StorageError."""
        return TextReader(self, split, position)


class TextReader(LineReader):
    """The lines of one file as `str`."""

    def records(self, data: bytes, offset: int, *, last: bool) -> tuple[list[str], int]:
        length = len(data) if last else data.rfind(b"\n") + 1
        return self._decoded(data[:length]) if length else [], length

    def _decoded(self, data: bytes) -> list[str]:
        # A newline byte is never part of another UTF-8 character, nor of a broken one, so
        # decoding many lines at once gives what decoding each would.
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = data.decode("utf-8", "replace")
            raw = data.split(b"\n")
            broken = sum(line.decode("utf-8", "ignore").encode() != line for line in raw)
            self.count(broken, "with bytes that are no UTF-8, replaced by U+FFFD")
        if "\r\n" in text:
            text = text.replace("\r\n", "\n")
        lines = text.split("\n")
        if not lines[-1]:  # the last line has its newline
            lines.pop()
        return lines


class JsonLinesSource(ParsedFiles):
    """Lines of files as `Row`s; files are found and read as by `TextFileSource`.

    A line that is not a JSON object stops the job, or is left out, counted and logged when
    `on_error` is "skip". Sizes are in bytes. Raises ConfigError.
    """

    def open(self, split: str, position: Any) -> "JsonReader":
        """Raises ObjectNotFoundError and StorageError."""
        return JsonReader(self, split, position)


class JsonReader(ParsedReader):
    """The lines of one file as rows."""

    left_out = "left out, as no JSON object"

    def records(self, data: bytes, offset: int, *, last: bool) -> tuple[list[Row], int]:
        """Raises CorruptObjectError for a malformed line, unless those are skipped."""
        length = len(data) if last else data.rfind(b"\n") + 1
        data = data[:length]
        if b"\r\n" in data:
            # Within an object it is white space; an error tells the offset in what is there.
            with suppress(CorruptObjectError):
                return self._decoded(data.replace(b"\r\n", b"\n"), offset), length
        return self._decoded(data, offset) if length else [], length

    def _decoded(self, data: bytes, offset: int) -> list[Row]:
        count = data.count(b"\n") + (not data.endswith(b"\n"))
        # Within an object no newline is between such brackets: one object per line, in one call.
        if data.count(b"}\n{") == count - 1:
            with suppress(*_MALFORMED):  # which line it is, is found below
                objects = _decoder.decode_lines(data)
                if len(objects) == count:
                    nested = b"[" in data or data.count(b"{") > count
                    return list(map(_row, objects)) if nested else _flat(objects)
        return self._line_by_line(data, offset)

    def _line_by_line(self, data: bytes, offset: int) -> list[Row]:
        rows = []
        for line in data.split(b"\n"):
            try:
                rows.append(_row(_decoder.decode(line)))
            except _MALFORMED as error:
                if line and not line.isspace():
                    self.malformed(offset, _problem(line, error, is_first=offset <= _MARK_BYTES))
            offset += len(line) + 1
        return rows


_OTHER_JSON: Final = re.compile("Expected `object`, got `(.*)`")


def _problem(line: bytes, error: Exception, *, is_first: bool) -> Malformed:
    """What is wrong with a line; the first one tells a file of another format."""
    expected, begin = "one JSON object a line", line.lstrip()[:1]
    if is_first and begin == b"[":
        action = "write its elements as a line each, as `jq -c '.[]'` does"
        return Malformed(expected, f"an array: {error}", action=action)
    if is_first and begin == b"{" and line.rstrip()[-1:] in b"{,":
        action = "write each object in one line, as `jq -c .` does"
        return Malformed(expected, f"one in several lines: {error}", action=action)
    if is_first and begin != b"{" and any(mark in line for mark in (b",", b";", b"\t")):
        action = "read CSV by CsvSource; for another line that is wrong, correct it"
        return Malformed(expected, f"{line[:60]!r}: {error}", action=action)
    if other := _OTHER_JSON.fullmatch(str(error)):
        return Malformed(expected, f"JSON of type {other[1]}")
    return Malformed(expected, str(error))


def _flat(objects: list[dict[str, Any]]) -> list[Row]:
    """Rows of objects without objects or arrays in them; mostly all have the same fields."""
    kinds = set(map(tuple, objects))
    if len(kinds) == 1:
        return list(map(row_maker(kinds.pop()), map(dict.values, objects)))
    return [row_maker(tuple(fields))(fields.values()) for fields in objects]


def _row(fields: dict[str, Any]) -> Row:
    return row_maker(tuple(fields))(map(_value, fields.values()))


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return _row(value)
    return list(map(_value, value)) if isinstance(value, list) else value
