"""Records as the values of a table's columns."""

from collections.abc import Collection, Sequence
from typing import Any

from tidelog.errors import UserFunctionError
from tidelog.state.schema.row import Row


class RowShape:
    """The columns that every record has to fill; `accepted` says what values they may hold.

    By name, the `optional` ones may be left out.
    """

    def __init__(
        self, table: str, names: Sequence[str], accepted: str, optional: Collection[str] = ()
    ) -> None:
        self.table = table
        self.names = tuple(names)
        self._known = frozenset(names)
        self._needed = self._known - frozenset(optional)
        more = f", of which {tuple(optional)} may be left out by name" if optional else ""
        self._expected = f"{accepted} for each of the columns {self.names}{more}"

    def values(self, record: Any) -> tuple[Any, ...]:
        """One value per column, in the order of the columns; raises UserFunctionError.

        Rows with field names and dicts are taken by name, other tuples and lists by position.
        """
        if isinstance(record, Row) and record._fields and record._fields != self.names:
            record = record.asDict()
        if isinstance(record, dict):
            if not self._needed <= record.keys() <= self._known:
                raise self.refused(f"fields {tuple(record)}")
            return tuple([record.get(name) for name in self.names])
        if not isinstance(record, tuple | list):
            raise self.refused(f"a {type(record).__name__}")
        if len(record) != len(self.names):
            raise self.refused(f"{len(record)} values")
        return tuple(record)

    def refused(self, found: str) -> UserFunctionError:
        """The error for a record that does not fit."""
        return UserFunctionError(
            f"a record for table {self.table!r}",
            expected=self._expected,
            found=found,
            action="change the record before the sink",
        )
