"""Rows on their way from Spark to the function, and from the function to the columns of the query.

Invariants: the function sees rows of tidelog with the columns it was promised, in their order, and
structs within as rows too, as the embedded JSON source makes them. Every field of the output schema
gets the value the function gave it, by name or, where it gave none, by place: Spark itself would
fill a missing name with null and drop an unknown one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidelog.errors import UserFunctionError
from tidelog.state.schema.row import Row


def rows_of(rows: Iterable[Any], columns: Sequence[str]) -> Iterator[Row]:
    """Rows of pyspark, cut to `columns`."""
    at: list[int] | None = None
    for row in rows:
        if at is None:
            # Spark puts the key's columns first, and adds the one with the event time.
            names = list(row.__fields__)
            at = [names.index(column) for column in columns]
        yield Row.of(columns, (_nested(row[position]) for position in at))


def key_of(key: Iterable[Any]) -> tuple[Any, ...]:
    """A grouping key; Spark may hand out binary as bytearray (`pyspark.binaryAsBytes`)."""
    return tuple(bytes(part) if isinstance(part, bytearray) else part for part in key)


def _nested(value: Any) -> Any:
    if isinstance(value, dict):
        return Row.of(value, map(_nested, value.values()))
    if hasattr(value, "__fields__"):
        return Row.of(value.__fields__, map(_nested, value))
    return list(map(_nested, value)) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Shape:
    """The names within a type: of a struct's fields and what lies in them, or of elements."""

    fields: tuple[str, ...] | None = None
    """Names of the fields of a row; None for an array, a map and a scalar."""
    inner: tuple["Shape", ...] = ()

    def fit(self, value: Any) -> Any:
        """The value with rows of exactly these names; raises UserFunctionError."""
        if value is None or not self.inner:
            return value
        if self.fields is None:
            (element,) = self.inner
            return list(map(element.fit, value)) if isinstance(value, list | tuple) else value
        values = self._in_order(value)
        return Row.of(self.fields, (s.fit(v) for s, v in zip(self.inner, values, strict=True)))

    def _in_order(self, value: Any) -> Sequence[Any]:
        fields = self.fields or ()
        names = value if isinstance(value, Mapping) else getattr(value, "_fields", ())
        # A row of pyspark has its names elsewhere.
        names = names or getattr(value, "__fields__", ())
        if names:
            if set(names) == set(fields) and len(names) == len(fields):
                by_name = (
                    value if isinstance(value, Mapping) else dict(zip(names, value, strict=True))
                )
                return [by_name[field] for field in fields]
        elif isinstance(value, tuple) and len(value) == len(fields):
            return value
        raise UserFunctionError(
            "an output row",
            expected=f"the fields {', '.join(fields)}",
            found=repr(value),
            action="yield a Row with these fields, or change output_schema",
        )


def shape_of(data_type: Any) -> Shape:
    """The shape of a `DataType` of pyspark."""
    kind = data_type.typeName()
    if kind == "struct":
        inner = tuple(shape_of(field.dataType) for field in data_type.fields)
        return Shape(tuple(data_type.names), inner)
    if kind == "array":
        return Shape(None, (shape_of(data_type.elementType),))
    return Shape()
