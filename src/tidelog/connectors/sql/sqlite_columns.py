"""The columns of a target table: how records become rows, and rows bytes for staging.

Invariant: a row that was accepted has one value per column, each of a kind SQLite stores; so
nothing but a constraint of the table can refuse it later.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tidelog.connectors.sql.records import RowShape, quoted
from tidelog.errors import ConfigError

_TYPE: Final = re.compile(r"\w+(\(\d+(, ?\d+)?\))?")
_KINDS: Final = frozenset({int, float, str, bytes, bool, type(None)})
_INTEGERS: Final = range(-(1 << 63), 1 << 63)

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[Any, ...]).decode


class Columns:
    """Names and declared types, such as {"word": "TEXT", "count": "INTEGER"}.

    Raises ConfigError when there are none or a type is not one word.
    """

    def __init__(self, table: str, types: Mapping[str, str]) -> None:
        self.table = table
        self.types = {name: kind.upper() for name, kind in types.items()}
        self._shape = RowShape(table, tuple(types), "None, int, float, str or bytes")
        if not types or not all(map(_TYPE.fullmatch, types.values())):
            raise ConfigError(
                f"columns of table {table!r}",
                expected="column names with types such as TEXT, INTEGER, REAL or BLOB",
                found=str(dict(types)),
                action="correct them; create the table yourself if it needs constraints",
            )

    def create_statement(self) -> str:
        """SQL that creates the table if it is absent."""
        columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in self.types.items())
        return f"CREATE TABLE IF NOT EXISTS {quoted(self.table)} ({columns})"

    def insert_statement(self) -> str:
        """SQL that inserts one row."""
        names = ", ".join(map(quoted, self.types))
        marks = ", ".join("?" * len(self.types))
        return f"INSERT INTO {quoted(self.table)} ({names}) VALUES ({marks})"

    def encode(self, record: Any) -> bytes:
        """The values of a record in the order of the columns; raises UserFunctionError.

        Rows with field names and dicts are taken by name, other tuples and lists by position.
        """
        try:
            return _encode(self._checked(self._shape.values(record)))
        except UnicodeEncodeError as error:
            raise self._shape.refused(str(error)) from error

    @staticmethod
    def decode(row: bytes) -> tuple[Any, ...]:
        """The values again."""
        return _decode(row)

    def _checked(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        for value in values:
            if value.__class__ not in _KINDS:
                raise self._shape.refused(f"a value of type {type(value).__name__}")
            if value.__class__ is int and value not in _INTEGERS:
                raise self._shape.refused(f"{value}, which has more than 64 bits")
        return values
