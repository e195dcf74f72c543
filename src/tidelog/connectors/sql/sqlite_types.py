"""What columns of SQLite take.

SQLite stores any value in any column, but converts it to the column's affinity first: the number 5
in a text column to the text "5", the text "007" in a column of numbers to 7.

Invariant: no value that was taken is changed by this.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from tidelog.connectors.exact import ColumnType, unfit
from tidelog.errors import ConfigError

_NUMBER: Final = re.compile(
    r"[ \t\n\v\f\r]*[+-]?(\d+[.]?\d*|[.]\d+)(e[+-]?\d+)?[ \t\n\v\f\r]*", re.I | re.A
)
"""A text that SQLite makes a number of, in a column of numbers."""
_WORDS: Final = ("INT", "CHAR", "CLOB", "TEXT", "BLOB", "REAL", "FLOA", "DOUB")
"""What SQLite looks for in the name of a type ..."""
_NUMERIC: Final = frozenset(
    ("NUMERIC", "DECIMAL", "NUMBER", "BOOL", "BOOLEAN", "DATE", "DATETIME", "TIME", "TIMESTAMP")
)
"""... and names without such a word by which a column of numbers may be meant."""
_INTEGERS: Final = range(-(1 << 63), 1 << 63)


def check_new_types(table: str, columns: Mapping[str, str]) -> None:
    """Raise ConfigError for a type that nobody means: SQLite itself refuses no name of a type."""
    for name, kind in columns.items():
        upper = kind.upper()
        if not any(word in upper for word in _WORDS) and upper.partition("(")[0] not in _NUMERIC:
            raise ConfigError(
                f"type of column {name!r} of table {table!r}",
                expected="TEXT, INTEGER, REAL, BLOB, NUMERIC, or another name that SQLite knows, "
                "such as VARCHAR(10)",
                found=f"{kind!r}, of which SQLite makes a column of numbers",
                action="correct it, or create the table yourself",
            )


def column_type(declared: str) -> ColumnType:
    """What a column takes, by its declared type as SQLite reads it."""
    kind = declared.upper()
    if "INT" in kind:
        return _NUMBERS
    if any(word in kind for word in ("CHAR", "CLOB", "TEXT")):
        return _TEXTS
    if "BLOB" in kind:
        return _ANYTHING
    return _REALS if any(word in kind for word in ("REAL", "FLOA", "DOUB")) else _NUMBERS


def _any(value: Any) -> Any:
    if value.__class__ is int:
        if value not in _INTEGERS:
            raise ValueError("it has more than 64 bits")
    elif value.__class__ is str:
        value.encode()  # a lone surrogate is no text
    elif value.__class__ not in (bool, float, bytes):
        raise unfit(value, "an int, float, str or bytes")
    return value


def _text(value: Any) -> Any:
    if value.__class__ not in (str, bytes):
        raise unfit(value, "a str or bytes")
    return _any(value)


def _number(value: Any) -> Any:
    if value.__class__ is str and _NUMBER.fullmatch(value):
        raise ValueError("SQLite makes a number of this text")
    return _any(value)


def _real(value: Any) -> Any:
    if value.__class__ is int and value in _INTEGERS and int(float(value)) != value:
        raise ValueError("no float has this value")
    return _number(value)


_ANYTHING: Final = ColumnType("an int, float, str or bytes", frozenset({float, bytes, bool}), _any)
_TEXTS: Final = ColumnType("a str or bytes", frozenset({bytes}), _text)
_NUMBERS: Final = _ANYTHING._replace(exact=_number)
_REALS: Final = _ANYTHING._replace(exact=_real)
