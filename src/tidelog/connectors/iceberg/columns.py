"""The columns of a table of Iceberg, by its Arrow schema.

Invariant: what was accepted can be written, and is read again as it was: every value fits the type
of its column exactly, and no column that must have a value lacks one.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from importlib import import_module
from math import isnan
from numbers import Real
from typing import Any, Final, NamedTuple

from tidelog.connectors import exact
from tidelog.connectors.exact import ColumnType, Member
from tidelog.connectors.records import RowShape
from tidelog.errors import UserFunctionError


class _Column(NamedTuple):
    field: Any
    kind: ColumnType
    partitions: Sequence[Sequence[str]]
    """Where its values are partitions: names within it, none for the column itself."""


class TableColumns:
    """Makes batches of Arrow of records."""

    def __init__(self, table: str, schema: Any, partitioned: Sequence[Sequence[str]] = ()) -> None:
        """`partitioned`: names of columns whose values are partitions, from the outside in."""
        self._schema = schema
        optional = [field.name for field in schema if field.nullable]
        self._shape = RowShape(table, schema.names, "a value", optional)
        self._columns: list[_Column] = []
        for field in schema:
            partitions = [path[1:] for path in partitioned if path[:1] == (field.name,)]
            self._columns.append(_Column(field, _column_type(field.type), partitions))

    def batch(self, records: Sequence[Any]) -> Any:
        """The records as a batch of Arrow; raises UserFunctionError for one that does not fit."""
        rows = [*map(self._shape.values, records)]
        arrays = []
        for number, column in enumerate(self._columns):
            arrays.append(self._array(column, [row[number] for row in rows]))
        return import_module("pyarrow").RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, column: _Column, values: list[Any]) -> Any:
        pa = import_module("pyarrow")
        refusals = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)
        field, kind, partitions = column
        if not field.nullable and None in values:
            raise self._refused(field, None, "")
        try:
            arrow_values = kind.all_taken(values)
            # The library looks for the rows of a partition by `==`, and finds none of NaN.
            for path in partitions:
                if (nan := next(filter(_is_nan, _within(arrow_values, path)), None)) is not None:
                    name = ".".join((field.name, *path))
                    raise self._refused(field, nan, "pyiceberg makes no partition of NaN", name)
            return pa.array(arrow_values, type=field.type)
        except refusals:
            for value in values:
                try:
                    pa.array(kind.all_taken([value]), type=field.type)
                except refusals as error:
                    raise self._refused(field, value, error) from error
            raise

    def _refused(
        self, field: Any, value: Any, why: object, name: str | None = None
    ) -> UserFunctionError:
        expected = f"a value of type {field.type}" + ("" if field.nullable else ", required")
        return exact.refused(self._shape.table, name or field.name, expected, value, why)


def _is_nan(value: Any) -> bool:
    return isinstance(value, Real) and isnan(value)


def _within(values: Iterable[Any], path: Sequence[str]) -> Iterable[Any]:
    """The values at this path in rows, which are dicts; None where there is no row."""
    for name in path:
        values = [None if row is None else row[name] for row in values]
    return values


def _column_type(kind: Any) -> ColumnType:
    """What a column of an Arrow type takes."""
    types = import_module("pyarrow").types
    if types.is_struct(kind):
        fields = map(kind.field, range(kind.num_fields))
        return exact.struct_of({field.name: _member(field) for field in fields})
    if types.is_map(kind):
        return exact.map_of(_member(kind.key_field), _member(kind.item_field))
    if types.is_list(kind) or types.is_large_list(kind):
        return exact.list_of(_member(kind.value_field))
    return _scalar_type(kind, types)


def _member(field: Any) -> Member:
    return Member(_column_type(field.type), field.nullable, repr(field.name))


def _scalar_type(kind: Any, types: Any) -> ColumnType:
    sized: dict[str, Callable[[], ColumnType]] = {
        # Arrow looks at the range, and makes UTC of times with a zone and without.
        "is_integer": lambda: exact.integer(kind.bit_width).with_plain(int),
        "is_timestamp": lambda: exact.moment(zoned=kind.tz is not None).with_plain(datetime),
        "is_decimal": lambda: exact.decimal(kind.precision, kind.scale),
        "is_fixed_size_binary": lambda: exact.binary(kind.byte_width),
    }
    for test, make in {**_BY_TEST, **sized}.items():
        if getattr(types, test)(kind):
            return make()
    if getattr(kind, "extension_name", None) == "arrow.uuid":
        return exact.unique_id()
    return exact.anything()


_BY_TEST: Final[dict[str, Callable[[], ColumnType]]] = {
    "is_boolean": exact.boolean,
    "is_float32": exact.single,
    "is_float64": exact.double,
    "is_string": exact.text,
    "is_large_string": exact.text,
    "is_binary": exact.binary,
    "is_large_binary": exact.binary,
    "is_date": exact.day,
    "is_time": exact.time_of_day,
}
"""By the tests of `pyarrow.types`."""
