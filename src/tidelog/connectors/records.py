"""What sinks make of records: lines of bytes, or the values of a table's columns.

Invariant: as a line, a record becomes exactly what its format makes of it plus one newline.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain, starmap
from typing import Any, Final, Literal

import msgspec

from tidelog.connectors import exact
from tidelog.connectors.exact import ColumnType
from tidelog.errors import UserFunctionError, require
from tidelog.options.units import plural
from tidelog.state.schema.row import Row

Format = Literal["json", "text"] | Callable[[Any], str]
"""JSON lines, `str` of the record, or a function from record to text."""

EncodeLines = Callable[[Sequence[Any]], bytes]

_SCALARS: Final = frozenset({str, int, float, bool, type(None), bytes})

_encode_lines: Final = msgspec.json.Encoder().encode_lines


def line_encoder(format: Format, fields: Sequence[str] | None = None) -> EncodeLines:
    """The function that encodes records; raises ConfigError for an unknown format.

    As JSON, a row with field names and a dict become objects; `fields` names the values of
    tuples, which become objects too, and are arrays without it. The function raises
    UserFunctionError for a record that does not fit; exceptions of a format function pass through.
    """
    require("fields", repr(format), fields is None or format == "json", "format='json'")
    if format == "json":
        return _translated(_json(fields), "a value that JSON has")
    if format == "text":
        return _translated(_text(str), "text in UTF-8")
    expected = "'json', 'text' or a function from record to text"
    require("format", repr(format), callable(format), expected)
    return _text(format)


def _text(to_text: Callable[[Any], str]) -> EncodeLines:
    return lambda records: "".join([to_text(record) + "\n" for record in records]).encode()


def _json(fields: Sequence[str] | None) -> EncodeLines:
    if fields is None:
        return lambda records: _encode_lines(list(map(jsonable, records)))
    names = tuple(fields)
    line = _line_type(names)

    def plain(record: Any) -> Any:
        has_names = isinstance(record, Row) and len(record._fields) == len(record)
        if has_names or not isinstance(record, tuple):
            return jsonable(record)
        if len(record) != len(names):
            raise UserFunctionError(
                "a record for the sink",
                expected=f"{plural(len(names), 'value')}, for the fields {names}",
                found=plural(len(record), "value"),
                action="name all values in fields= of the sink, or change the record before it",
            )
        return {name: jsonable(value) for name, value in zip(names, record, strict=True)}

    def encode(records: Sequence[Any]) -> bytes:
        # The usual case, tuples of plain values, runs without a loop in Python.
        if (
            set(map(type, records)) <= {tuple}
            and set(map(len, records)) <= {len(names)}
            and _SCALARS.issuperset(map(type, chain.from_iterable(records)))
        ):
            return _encode_lines(list(starmap(line, records)))
        return _encode_lines(list(map(plain, records)))

    return encode


def _line_type(names: tuple[str, ...]) -> Callable[..., Any]:
    """What makes an object with these names of as many values."""
    # Field names need not be Python's: the attributes have names of their own.
    attributes = [f"field_{index}" for index in range(len(names))]
    renamed = dict(zip(attributes, names, strict=True))
    try:
        return msgspec.defstruct("Line", attributes, rename=renamed, gc=False)
    except ValueError:  # a name that occurs twice, or with characters that JSON escapes
        return lambda *values: dict(zip(names, values, strict=True))


def jsonable(value: Any) -> Any:
    """Rows as dicts, at any depth; msgspec would write them as arrays."""
    if value.__class__ in _SCALARS:
        return value
    # A row without values is what sources make of an object without fields: {}.
    if isinstance(value, Row) and len(value._fields) == len(value):
        return dict(zip(value._fields, map(jsonable, value), strict=True))
    if isinstance(value, dict):
        return {key: jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return list(map(jsonable, value))
    return value


def _translated(encode: EncodeLines, expected: str) -> EncodeLines:
    def checked(records: Sequence[Any]) -> bytes:
        try:
            return encode(records)
        except (TypeError, ValueError, RecursionError) as error:
            raise UserFunctionError(
                "a record for the sink",
                expected=expected,
                found=str(error),
                action="change the record before the sink, or pass a function as format",
            ) from error

    return checked


class RowShape:
    """The columns that every record has to fill; `accepted` says what values they may hold.

    By name, the `optional` ones may be left out.
    """

    def __init__(
        self, table: str, names: Sequence[str], accepted: str, optional: Collection[str] = ()
    ) -> None:
        self.table = table
        self.names = tuple(names)
        self._allowed = frozenset(names)
        self._needed = self._allowed - frozenset(optional)
        more = f", of which {tuple(optional)} may be left out by name" if optional else ""
        self._expected = f"{accepted} for each of the columns {self.names}{more}"

    def values(self, record: Any) -> tuple[Any, ...]:
        """One value per column, in the order of the columns; raises UserFunctionError.

        Rows with field names and dicts are taken by name, other tuples and lists by position.
        """
        if isinstance(record, Row) and record._fields and record._fields != self.names:
            record = record.asDict()
        if isinstance(record, dict):
            if not self._needed <= record.keys() <= self._allowed:
                raise self.refused(f"fields {tuple(record)}")
            return tuple([record.get(name) for name in self.names])
        if not isinstance(record, tuple | list):
            raise self.refused(f"a {type(record).__name__}")
        if len(record) != len(self.names):
            raise self.refused(plural(len(record), "value"))
        return tuple(record)

    def refused(self, found: str) -> UserFunctionError:
        """The error for a record that does not fit."""
        return UserFunctionError(
            f"a record for table {self.table!r}",
            expected=self._expected,
            found=found,
            action="change the record before the sink",
        )


class TypedRows:
    """Rows whose values their columns take exactly."""

    def __init__(self, shape: RowShape, columns: Mapping[str, ColumnType]) -> None:
        self._shape = shape
        self._names = tuple(columns)
        self._kinds = tuple(columns.values())

    def values(self, record: Any) -> tuple[Any, ...]:
        """One value per column; raises UserFunctionError for a record that does not fit."""
        values = self._shape.values(record)
        try:
            return tuple(
                [kind.taken(value) for kind, value in zip(self._kinds, values, strict=True)]
            )
        except (TypeError, ValueError):
            for name, kind, value in zip(self._names, self._kinds, values, strict=True):
                self._check(name, kind, value)
            raise

    def _check(self, name: str, kind: ColumnType, value: Any) -> None:
        try:
            kind.taken(value)
        except (TypeError, ValueError) as error:
            expected = f"{kind.expected}, or None"
            raise exact.refused(self._shape.table, name, expected, value, error) from error
