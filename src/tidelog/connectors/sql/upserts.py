"""A table with one row for each key: records insert, replace and remove rows.

Invariants: a record whose columns outside of the key are all None removes the row of its key; the
last record of a key in a transaction counts; no key has None or NaN, which no table finds again.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidelog.connectors import exact
from tidelog.connectors.exact import ColumnType
from tidelog.connectors.records import RowShape, TypedRows
from tidelog.errors import ConfigError, require


def quoted(name: str) -> str:
    """An SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


class KeyColumns:
    """The columns of a table by which rows are replaced; false for a table that only grows.

    Raises ConfigError for names that are no columns of the table.
    """

    def __init__(self, columns: Iterable[str], key: Sequence[str]) -> None:
        names = tuple(columns)
        valid = not isinstance(key, str) and len(set(key)) == len(key) and set(key) <= set(names)
        require("key", repr(key), valid, f"a list of names, once each, out of the columns {names}")
        self.names = tuple(key)
        self.values = tuple(name for name in names if name not in self.names)
        """The other columns: a record that has None in all of them removes a row."""
        self.quoted = ", ".join(map(quoted, self.names))
        self.constraint = f", PRIMARY KEY ({self.quoted})" if key else ""
        """The end of the declarations of a new table."""

    def __bool__(self) -> bool:
        return bool(self.names)

    def on_conflict(self) -> str:
        """The end of an INSERT."""
        if not self:
            return ""
        changes = ", ".join(f"{name} = excluded.{name}" for name in map(quoted, self.values))
        action = f"UPDATE SET {changes}" if changes else "NOTHING"
        return f" ON CONFLICT ({self.quoted}) DO {action}"

    def check_unique(self, what: str, table: str, unique: Iterable[Iterable[str]]) -> None:
        """Raise ConfigError when no constraint makes the key unique; `table` is the name in SQL."""
        constraints = [set(names) for names in unique]
        if self and set(self.names) not in constraints:
            index = quoted("_".join(("tidelog", *self.names))[:60])
            raise ConfigError(
                what,
                expected=f"a primary key or a unique index on {self.names}, as key= says",
                found=f"unique: {[sorted(map(str, names)) for names in constraints]}",
                action=f"CREATE UNIQUE INDEX {index} ON {table} ({self.quoted}), once each key has "
                "one row; or let the sink create another table",
            )

    def rows(self, shape: RowShape, kinds: Mapping[str, ColumnType]) -> TypedRows:
        """What makes rows of records."""
        return _KeyedRows(shape, kinds, self.names) if self else TypedRows(shape, kinds)


class _KeyedRows(TypedRows):
    """Rows whose keys a table finds again."""

    def __init__(
        self, shape: RowShape, columns: Mapping[str, ColumnType], key: Sequence[str]
    ) -> None:
        super().__init__(shape, columns)
        self._table = shape.table
        self._key = [(name, shape.names.index(name)) for name in key]

    def values(self, record: Any) -> tuple[Any, ...]:
        """As `TypedRows`; raises UserFunctionError for a key that has None or NaN."""
        values = super().values(record)
        for name, index in self._key:
            value = values[index]
            if value is None or (value.__class__ is float and value != value):  # noqa: PLR0124
                raise exact.refused(
                    self._table, name, "a value: the column is in key=", value, "it equals no other"
                )
        return values
