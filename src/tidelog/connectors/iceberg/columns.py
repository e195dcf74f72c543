"""Records as batches of Arrow that fit the columns of a table.

Invariant: what was accepted can be written: every value fits the type of its column, and no column
that must have a value lacks one.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from tidelog.errors import UserFunctionError
from tidelog.state.schema.row import Row

_Change = Callable[[Any], Any]


class Columns:
    """The columns of a table, by its Arrow schema."""

    def __init__(self, table: str, schema: Any) -> None:
        self._table = table
        self._schema = schema
        self._names: list[str] = schema.names
        self._known = frozenset(self._names)
        self._needed = [field.name for field in schema if not field.nullable]
        self._changes = [_change(field.type) for field in schema]

    def batch(self, records: Sequence[Any]) -> Any:
        """The records as a batch; raises UserFunctionError for one that does not fit.

        Rows with field names and dicts are taken by name and may lack columns that are optional,
        other tuples and lists are taken by position.
        """
        pa = import_module("pyarrow")
        rows = [self._values(record) for record in records]
        arrays = [
            self._array(field, change, [row[at] for row in rows])
            for at, (field, change) in enumerate(zip(self._schema, self._changes, strict=True))
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _values(self, record: Any) -> Sequence[Any]:
        if isinstance(record, Row) and record._fields:
            if list(record._fields) == self._names:
                return record
            record = record.asDict()
        if isinstance(record, dict):
            if record.keys() <= self._known and all(name in record for name in self._needed):
                return [record.get(name) for name in self._names]
            raise self._refused(f"the fields {tuple(record)}")
        if not isinstance(record, tuple | list):
            raise self._refused(f"a {type(record).__name__}")
        if len(record) != len(self._names):
            raise self._refused(f"{len(record)} values")
        return record

    def _array(self, field: Any, change: _Change | None, values: list[Any]) -> Any:
        pa = import_module("pyarrow")
        if not field.nullable and None in values:
            raise self._refused_value(field, None)
        try:
            return pa.array(_changed(change, values), type=field.type)
        except _refusals():
            for value in values:
                try:
                    pa.array(_changed(change, [value]), type=field.type)
                except _refusals() as error:
                    raise self._refused_value(field, value) from error
            raise

    def _refused_value(self, field: Any, value: Any) -> UserFunctionError:
        return UserFunctionError(
            f"a record for table {self._table!r}, column {field.name!r}",
            expected=f"a value of type {field.type}" + ("" if field.nullable else ", required"),
            found=f"{value!r:.100}",
            action="change the record before the sink, or the type of the column",
        )

    def _refused(self, found: str) -> UserFunctionError:
        optional = [name for name in self._names if name not in self._needed]
        return UserFunctionError(
            f"a record for table {self._table!r}",
            expected=f"values for the columns {tuple(self._names)}"
            + (f", of which {tuple(optional)} may be left out by name" if optional else ""),
            found=found,
            action="change the record before the sink",
        )


def _changed(change: _Change | None, values: list[Any]) -> list[Any]:
    return values if change is None else [None if v is None else change(v) for v in values]


def _change(kind: Any) -> _Change | None:
    """What makes of a value one that Arrow takes for a type; None: nothing need be done."""
    types = import_module("pyarrow").types
    if types.is_struct(kind):
        inner = {kind.field(at).name: _change(kind.field(at).type) for at in range(kind.num_fields)}
        return lambda value: _struct(inner, value)
    if types.is_map(kind):
        of_key, of_item = _change(kind.key_type), _change(kind.item_type)
        return lambda value: list(
            zip(
                _changed(of_key, list(value)),
                _changed(of_item, list(dict(value).values())),
                strict=True,
            )
        )
    if types.is_list(kind) or types.is_large_list(kind):
        of = _change(kind.value_type)
        return None if of is None else lambda value: _changed(of, list(value))
    return None


def _struct(fields: dict[str, _Change | None], value: Any) -> dict[str, Any]:
    if isinstance(value, Row):
        value = value.asDict()
    if not isinstance(value, dict) or not value.keys() <= fields.keys():
        raise TypeError(f"expected the fields {tuple(fields)}")
    return {name: _changed(fields[name], [found])[0] for name, found in value.items()}


def _refusals() -> tuple[type[Exception], ...]:
    error: type[Exception] = import_module("pyarrow").ArrowException
    return error, TypeError, ValueError, OverflowError, AttributeError
