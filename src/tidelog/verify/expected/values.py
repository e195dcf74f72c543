"""Keys and values as canonical text, whatever Python, Spark or a stored row call them.

Invariants: equal values are equal text: integral numbers are written as integers, tuples and rows
as arrays, bytes as base64, times as ISO 8601, decimals as text with all their digits, and a tuple
of one field as that field. Fields stand in the order of the schema.
"""

import base64
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

import msgspec

from tidelog.checkpoint.manifest import StateInfo
from tidelog.errors import RestoreError
from tidelog.state.schema.decode import DecodedRow, RowDecoder
from tidelog.state.schema.schema import parse_schema
from tidelog.verify.job.rows import Row

COMPARABLE: Final = ("aggregate", "value", "list", "map")
"""Kinds of state that have a value per key."""

_encode = msgspec.json.Encoder(order="sorted").encode


def canonical(value: Any) -> str:
    """The text of a value; raises TypeError for one that has none."""
    return _encode(_plain(value)).decode()


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | str() | int():
            return value
        case float():
            return (
                int(value) if value.is_integer() else value if math.isfinite(value) else f"{value}"
            )
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode("ascii")
        case Mapping():
            return {_text(key): _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
    return msgspec.to_builtins(value, str_keys=True)


def _text(key: Any) -> str:
    return key if isinstance(key, str) else canonical(bare(key))


def key_text(key: Any) -> str:
    """The text of a key; a key of one part is that part. Raises TypeError."""
    return canonical(key[0] if isinstance(key, (list, tuple)) and len(key) == 1 else key)


def bare(value: Any) -> Any:
    """The field of a tuple (or row) that has but one; any other value as it is."""
    return value[0] if isinstance(value, tuple) and len(value) == 1 else value


@dataclass(frozen=True, slots=True)
class Shape:
    """What the value of a key is: of a state of this kind, with these fields."""

    kind: str
    fields: tuple[str, ...]
    """Field names of a value, of a list's element, of a map's entry; none: any value at all."""
    entry: tuple[str, ...] = ()
    """Field names of a map's key."""

    @classmethod
    def of(cls, info: StateInfo) -> "Shape":
        """The shape of a state; its kind is one of COMPARABLE."""
        typed = info.kind in ("value", "list", "map")
        schemas = [tuple(f.name for f in parse_schema(s).fields) for s in info.schema if typed]
        return cls(info.kind, schemas[-1] if schemas else (), schemas[0] if schemas else ())

    def text(self, value: Any) -> str:
        """The text of a key's value, as a user gives it; raises TypeError, ValueError."""
        if self.kind == "map":
            pairs = {_text(_ordered(self.entry, key)): value[key] for key in value}
            return canonical({key: _ordered(self.fields, each) for key, each in pairs.items()})
        if self.kind == "list":
            return canonical([_ordered(self.fields, each) for each in value])
        return canonical(_ordered(self.fields, value))


def _ordered(fields: Sequence[str], value: Any) -> Any:
    """An object by field names as a tuple in the order of fields; a tuple of one as its field."""
    if fields and isinstance(value, Mapping) and set(value) == set(fields):
        value = tuple(value[name] for name in fields)
    return bare(value)


def stored_values(info: StateInfo, rows: Iterable[Row]) -> Iterator[tuple[str, str]]:
    """(key, value) as text of every key of a state, given its rows in the order of a table.

    Raises RestoreError for a row that cannot be decoded.
    """
    shape, combine = Shape.of(info), _COMBINE[info.kind]
    decoder = RowDecoder([info])
    decoded = (_readable(info, decoder.decode(key, value)) for key, value in rows)
    # Rows of a key lie together: the encoded key is what they start with.
    for key, of_key in groupby(decoded, attrgetter("key")):
        yield key_text(key), shape.text(combine(list(of_key), shape))


def _readable(info: StateInfo, row: DecodedRow) -> DecodedRow:
    if row.encoding == "decoded":
        return row
    raise RestoreError(
        f"state {info.name!r}, key {row.key} in base64",
        expected=f"a row of a {info.kind} state of ({'; '.join(info.schema)})",
        found=f"{str(row.value)[:80]} in base64",
        action="find out what wrote it; a checkpoint before it may be right",
    )


def _single(rows: list[DecodedRow], shape: Shape) -> Any:
    return rows[0].value


def _joined(rows: list[DecodedRow], shape: Shape) -> Any:
    return [element for row in rows for element in row.value]


def _mapped(rows: list[DecodedRow], shape: Shape) -> Any:
    return {_text(_ordered(shape.entry, row.entry)): row.value for row in rows}


_COMBINE: Final[Mapping[str, Callable[[list[DecodedRow], Shape], Any]]] = {
    "aggregate": _single,
    "value": _single,
    "list": _joined,
    "map": _mapped,
}
