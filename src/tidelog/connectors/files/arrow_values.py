"""Values of Arrow columns as values of Python that records are made of.

Invariant: a kind names what a column's values are in Python, so that files agree on a column when
they agree on its kind, whatever widths they store it in; nothing loses precision silently.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC
from importlib import import_module
from typing import Any, Final, NamedTuple

from tidelog.state.schema.row import Row, row_maker


class Column(NamedTuple):
    """How a column is read."""

    outer: str
    """What its values are, with `{}` for each of the kinds within."""
    cast: Any = None
    """The Arrow type whose values are taken, None for the column's own."""
    value: Callable[[Any], Any] | None = None
    """What becomes of each value but None; None: it stays as it is."""
    inner: tuple["Column", ...] = ()

    @property
    def kind(self) -> str:
        """What its values are in Python, such as `list[int]`."""
        return self.outer.format(*(column.kind for column in self.inner))

    def common(self, other: "Column") -> "Column | None":
        """What both are; None when they differ.

        A writer that has seen no value, such as pandas, knows no type for it: that fits any other.
        """
        if _NOTHING in (self.outer, other.outer):
            return other if self.outer == _NOTHING else self
        if self.outer != other.outer:
            return None
        within = [one.common(two) for one, two in zip(self.inner, other.inner, strict=True)]
        both = tuple(column for column in within if column is not None)
        return self._replace(inner=both) if len(both) == len(within) else None


_NOTHING: Final = "None"
"""The kind of a column without values."""


def column(kind: Any) -> Column | None:
    """How to read columns of an Arrow type; None when its values have no place in a record."""
    types = import_module("pyarrow").types
    if types.is_dictionary(kind):
        inner = column(kind.value_type)
        return inner and inner._replace(cast=inner.cast or kind.value_type)
    if types.is_struct(kind):
        return _row(kind)
    if types.is_map(kind):
        return _dict(kind)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _list(kind)
    return _scalar(kind)


def values(array: Any, column: Column) -> list[Any]:
    """The values of an array; raises ValueError for those that Python has no value for."""
    if column.cast is not None and array.type != column.cast:
        array = array.cast(column.cast)
    objects: list[Any] = array.to_pylist()
    return objects if column.value is None else [_applied(column.value, value) for value in objects]


_SCALARS = {
    "bool": ("is_boolean",),
    "int": ("is_integer",),
    "float": ("is_floating",),
    "Decimal": ("is_decimal",),
    "str": ("is_string", "is_large_string", "is_string_view"),
    "bytes": ("is_binary", "is_large_binary", "is_binary_view", "is_fixed_size_binary"),
    _NOTHING: ("is_null",),
    "date": ("is_date",),
    "time": ("is_time",),
    "timedelta": ("is_duration",),
    "datetime": ("is_timestamp",),
}
"""Types of Python, and the tests of `pyarrow.types` for those of Arrow that have its values."""


def _scalar(kind: Any) -> Column | None:
    pa = import_module("pyarrow")
    if getattr(kind, "extension_name", None) == "arrow.uuid":
        return Column("UUID")
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        # In UTC a record needs no data base of zones, and equal times are equal values.
        return Column("datetime with zone", pa.timestamp("us", "UTC"), lambda t: t.astimezone(UTC))
    casts = {
        "date": pa.date32(),
        "time": pa.time64("us"),
        "timedelta": pa.duration("us"),
        "datetime": pa.timestamp("us"),
    }
    for name, tests in _SCALARS.items():
        if any(getattr(pa.types, test)(kind) for test in tests):
            return Column(name, casts.get(name))
    return None


def _row(kind: Any) -> Column | None:
    pa = import_module("pyarrow")
    fields = [kind.field(index) for index in range(kind.num_fields)]
    inner = _all(field.type for field in fields)
    if inner is None:
        return None
    names = tuple(field.name for field in fields)
    changes = [column.value for column in inner]
    field_kinds = ", ".join(name.replace("{", "{{").replace("}", "}}") + ": {}" for name in names)
    cast = [f.with_type(column.cast or f.type) for f, column in zip(fields, inner, strict=True)]
    make = row_maker(names)

    def row(value: dict[str, Any]) -> Row:
        return make(map(_applied, changes, map(value.__getitem__, names)))

    return Column(f"Row({field_kinds})", _needed(pa.struct(cast), inner), row, tuple(inner))


def _dict(kind: Any) -> Column | None:
    inner = _all((kind.key_type, kind.item_type))
    if inner is None or inner[0].value is not None:
        return None
    key, item = inner
    cast = import_module("pyarrow").map_(key.cast or kind.key_type, item.cast or kind.item_type)

    def mapped(pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
        mapping = {name: _applied(item.value, inner) for name, inner in pairs}
        if len(mapping) < len(pairs):
            raise ValueError("a map that has a key twice")
        return mapping

    return Column("dict[{}, {}]", _needed(cast, inner), mapped, (key, item))


def _list(kind: Any) -> Column | None:
    element = column(kind.value_type)
    if element is None:
        return None
    cast = import_module("pyarrow").list_(element.cast or kind.value_type)
    change = element.value

    def listed(elements: list[Any]) -> list[Any]:
        return [_applied(change, value) for value in elements]

    convert = None if change is None else listed
    return Column("list[{}]", _needed(cast, [element]), convert, (element,))


def _all(kinds: Iterable[Any]) -> list[Column] | None:
    columns = [column(kind) for kind in kinds]
    readable = [column for column in columns if column is not None]
    return readable if len(readable) == len(columns) else None


def _needed(cast: Any, inner: Sequence[Column]) -> Any:
    return cast if any(column.cast is not None for column in inner) else None


def _applied(change: Callable[[Any], Any] | None, value: Any) -> Any:
    return value if change is None or value is None else change(value)
