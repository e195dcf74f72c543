"""Records as rows of a table: the values in the order of its columns.

Invariant: a row that was accepted has one value per column.
"""

from collections.abc import Sequence
from typing import Any

from tidelog.errors import UserFunctionError
from tidelog.state.schema.row import Row


class RowShape:
    """The columns that every record has to fill; `accepted` says what values they may hold."""

    def __init__(self, table: str, names: Sequence[str], accepted: str) -> None:
        self.table = table
        self.names = tuple(names)
        self._known = frozenset(names)
        self._accepted = accepted

    def values(self, record: Any) -> tuple[Any, ...]:
        """The values of a record in the order of the columns; raises UserFunctionError.

        Rows with field names and dicts are taken by name, other tuples and lists by position.
        """
        if isinstance(record, Row) and record._fields and record._fields != self.names:
            record = record.asDict()
        if isinstance(record, dict):
            if record.keys() != self._known:
                raise self.refused(f"fields {tuple(record)}")
            return tuple([record[name] for name in self.names])
        if not isinstance(record, tuple | list):
            raise self.refused(f"a {type(record).__name__}")
        if len(record) != len(self.names):
            raise self.refused(f"{len(record)} values")
        return tuple(record)

    def refused(self, found: str) -> UserFunctionError:
        """The error for a record that does not fit."""
        return UserFunctionError(
            f"a record for table {self.table!r}",
            expected=f"{self._accepted} for each of the columns {self.names}",
            found=found,
            action="change the record before the sink",
        )


def quoted(name: str) -> str:
    """An SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
