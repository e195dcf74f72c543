"""What the function yields, on its way to the columns of the query.

Invariant: every field of the output schema gets the value the function gave it, by name or, where
it gave none, by place. Spark itself would fill a missing name with null and drop an unknown one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidelog.errors import UserFunctionError
from tidelog.state.row import Row


@dataclass(frozen=True, slots=True)
class Shape:
    """The names within a type: of a struct's fields and what lies in them, or of elements."""

    fields: tuple[str, ...] | None = None
    """None: an array, or, without `inner`, a scalar or a map."""
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
