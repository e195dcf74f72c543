"""What columns of PostgreSQL take.

A text is read as PostgreSQL reads it, in any column; values of other classes must be of the
column's kind. Columns of types that are not here take what psycopg makes of a value.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from tidelog.connectors import exact
from tidelog.connectors.exact import ColumnType, items

_TYPE: Final = re.compile(
    r"(?P<name>[a-z ]+?)(\((?P<sizes>[-\d,]+)\))?(?P<zone> with(out)? time zone)?(?P<array>\[\])?"
)
_INTEGER_BITS: Final = {"smallint": 16, "integer": 32, "bigint": 64}
_TEXTS: Final = ("text", "character varying", "character")


def column_type(declared: str) -> ColumnType:
    """What a column takes, by the name that PostgreSQL gives its type."""
    match = _TYPE.fullmatch(declared)
    if match is None:
        return exact.anything()
    name = match["name"] + (" with zone" if match["zone"] == " with time zone" else "")
    sizes = tuple(map(int, match["sizes"].split(","))) if match["sizes"] else ()
    kind = _scalar_type(name, sizes)
    return _array_of(kind) if match["array"] else kind


def _scalar_type(name: str, sizes: tuple[int, ...]) -> ColumnType:
    if name in _INTEGER_BITS:
        return exact.integer(_INTEGER_BITS[name]).with_plain(str)
    if name in _TEXTS:
        return exact.text(*sizes)
    if name == "numeric":
        precision, scale = (*sizes, 0, 0)[:2] if sizes else (None, 0)
        return exact.decimal(precision, scale, special=True).with_plain(str)
    if name in _TIMES:
        # The number says how many digits of a second there are.
        step_us = 10 ** (6 - sizes[0]) if sizes else 1
        return _TIMES[name](step_us).with_plain(str)
    return _SIMPLE[name]().with_plain(str) if name in _SIMPLE else exact.anything()


_SIMPLE: Final[Mapping[str, Callable[[], ColumnType]]] = {
    "boolean": exact.boolean,
    "real": exact.single,
    "double precision": exact.double,
    "bytea": exact.binary,
    "date": exact.day,
    "uuid": exact.unique_id,
}
_TIMES: Final[Mapping[str, Callable[[int], ColumnType]]] = {
    "timestamp": lambda step_us: exact.moment(zoned=False, step_us=step_us),
    "timestamp with zone": lambda step_us: exact.moment(zoned=True, step_us=step_us),
    "time": lambda step_us: exact.time_of_day(step_us=step_us),
    "time with zone": lambda step_us: exact.time_of_day(zoned=True, step_us=step_us),
    "interval": exact.elapsed,
}


def _array_of(kind: ColumnType) -> ColumnType:
    """Lists, also within each other: PostgreSQL has one type for any number of dimensions."""

    def taken(value: Any) -> Any:
        return list(map(taken, value)) if isinstance(value, list | tuple) else kind.taken(value)

    def listed(value: Any) -> list[Any]:
        return list(map(taken, items(value)))

    return ColumnType(f"a list of which each is {kind.expected}", frozenset({str}), listed)
