"""Arrow batches of a view: exactly the columns asked for, in their order and of their types.

Invariant: a column is only computed when it is asked for; one that a layout does not have is null.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.spark.source.filters import Intervals
from tidelog.spark.source.views import ViewColumn

Row = Mapping[str, Any]
Arrays = Mapping[str, Callable[[], pa.Array]]

ROWS: Final = 2048
"""Rows of a batch, where the source of them sets no other limit."""


def schema(columns: Iterable[ViewColumn]) -> pa.Schema:
    """The Arrow schema that Spark expects for these columns."""
    types = {
        "bigint": pa.int64(),
        "int": pa.int32(),
        "string": pa.string(),
        "binary": pa.binary(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "array<bigint>": pa.list_(pa.field("element", pa.int64())),
    }
    return pa.schema([pa.field(name, types[type_name]) for name, type_name in columns])


def from_rows(columns: Sequence[ViewColumn], rows: Sequence[Row]) -> pa.RecordBatch:
    """A batch of rows that are made one by one: of objects and blocks, not of records.

    Timestamps are microseconds since 1970; a value that a row does not name is null.
    """
    return pa.RecordBatch.from_pylist(list(rows), schema=schema(columns))


def from_arrays(columns: Sequence[ViewColumn], length: int, arrays: Arrays) -> pa.RecordBatch:
    """A batch of `length` rows from functions that make its columns."""
    fields = schema(columns)
    made = [
        arrays[field.name]().cast(field.type)
        if field.name in arrays
        else pa.nulls(length, field.type)
        for field in fields
    ]
    return pa.RecordBatch.from_arrays(made, schema=fields)


def constants(length: int, **values: int | str) -> Arrays:
    """Columns with the same value in every row."""
    return {name: partial(pa.repeat, value, length) for name, value in values.items()}


def where(batch: pa.RecordBatch, numbers: pa.Array, wanted: Intervals) -> pa.RecordBatch:
    """The rows whose number, in an array of its own, is wanted."""
    wide = numbers.cast(pa.int64())
    spans = [
        pc.and_(pc.greater_equal(wide, first), pc.less_equal(wide, last))
        for first, last in wanted.spans
    ]
    none = pa.repeat(False, len(wide))
    return batch.filter(reduce(pc.or_, spans, none))
