"""Rows: named tuples made on the fly, with the interface of Spark's `Row`.

Invariants: a row is a tuple; equality and hashing are those of its values; a row with fields has no
method of tuples, and a field goes behind a method of rows with its name.
Rows of the same field names share a class, which finds `row.field` as fast as a named tuple does.
"""

from collections import _tuplegetter  # type: ignore[attr-defined]  # missing in its stubs
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from tidelog.options.units import plural

_MAX_CLASSES: Final = 1024
"""Lists of field names that get a class: data may have new ones without end, and classes stay."""


class _TupleMethod:
    """A method of tuples, in rows of bare values; in others a field, or none as any other name: a
    method would be taken for the value of a field that some records lack.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._method = getattr(tuple, name)

    def __get__(self, row: Any, kind: type) -> Any:
        if row is not None and row._fields:
            return row.__getattr__(self._name)
        return self._method.__get__(row, kind)


_TUPLE_METHODS: Final = ("count", "index")


class Row(tuple[Any, ...]):
    """`Row(word="tide", count=3)`: fields by name, index or attribute.

    `Row("word", "count")` makes a kind of rows: `Row("word", "count")("tide", 3)`.
    """

    __slots__ = ()
    _fields: tuple[str, ...] = ()
    """Field names; empty for a row of bare values."""
    count: Any = _TupleMethod("count")
    index: Any = _TupleMethod("index")

    def __new__(cls, *args: Any, **fields: Any) -> "Row":
        if args and fields:
            raise ValueError("a Row takes either positional values or named fields, not both")
        return cls.of(fields, fields.values()) if fields else cls.of((), args)

    @classmethod
    def of(cls, names: Iterable[str], values: Iterable[Any]) -> "Row":
        """A row from field names and values."""
        names = tuple(names)
        is_row = cls.__module__ == __name__  # and no subclass that a program has made
        return row_maker(names)(values) if is_row else _with_own_names(cls, names, values)

    def __call__(self, *values: Any) -> "Row":
        """A row of these values under the names this row lists."""
        if len(values) > len(self):
            raise ValueError(
                f"expected {plural(len(self), 'value')} for {tuple(self)}, found {len(values)}"
            )
        return Row.of(self, values)

    def __getattr__(self, name: str) -> Any:
        if name == "__fields__" and self._fields:
            return list(self._fields)
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[self._fields.index(name)]
        except ValueError:
            raise AttributeError(_no_field(name, self._fields)) from None

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, str):
            try:
                return super().__getitem__(self._fields.index(item))
            except ValueError:
                raise KeyError(_no_field(item, self._fields)) from None
        return super().__getitem__(item)

    def get(self, name: str, default: Any = None) -> Any:
        """The field of this name, or the default where the row has none."""
        return self[name] if name in self._fields else default

    def replace(self, /, **fields: Any) -> "Row":
        """A row with other values in some of its fields; raises KeyError for one it has not."""
        for name in fields:
            if name not in self._fields:
                action = f"; Row(**row.asDict(), {name}=...) makes a row that has it"
                raise KeyError(f"the row has no field {name!r}, only {self._fields}{action}")
        values = [fields.get(name, self[index]) for index, name in enumerate(self._fields)]
        return type(self).of(self._fields, values)

    def __contains__(self, item: object) -> bool:
        return item in self._fields if self._fields else super().__contains__(item)

    def __setattr__(self, name: str, value: Any) -> None:
        raise TypeError(f"a row is never changed; row.replace({name}=...) makes another one")

    def asDict(self, recursive: bool = False) -> dict[str, Any]:
        """Fields and values; with `recursive`, rows within values too."""
        if not self._fields and len(self):
            raise TypeError("a row of values without names is no dict; list(row) has its values")
        values = map(_as_dicts, self) if recursive else self
        return dict(zip(self._fields, values, strict=False))

    def __repr__(self) -> str:
        if not self._fields:
            return f"<Row({', '.join(map(repr, self))})>"
        return f"Row({', '.join(f'{k}={v!r}' for k, v in zip(self._fields, self, strict=False))})"

    def __reduce__(self) -> tuple[Any, ...]:
        # The classes of rows that share their names are found by these alone.
        kind = Row if type(self).__module__ == __name__ else type(self)
        return kind.of, (self._fields, tuple(self))


class _OwnNames(Row):
    """A row that holds its field names itself: there are too many lists of them for classes."""


RowMaker = Callable[[Iterable[Any]], Row]

_makers: Final[dict[tuple[str, ...], RowMaker]] = {(): partial(tuple.__new__, Row)}


def row_maker(names: tuple[str, ...]) -> RowMaker:
    """What makes rows with these field names, of their values."""
    return _makers.get(names) or _new_maker(names)


def _new_maker(names: tuple[str, ...]) -> RowMaker:
    if len(_makers) >= _MAX_CLASSES or not all(type(name) is str for name in names):
        return partial(_with_own_names, _OwnNames, names)
    members = {"__slots__": (), "__module__": __name__, "_fields": names}
    for index, name in enumerate(names):
        # `row.get` is the method of rows, and no name with an underscore is a field's.
        is_free = name in _TUPLE_METHODS or not hasattr(Row, name)
        if name not in members and not name.startswith("_") and is_free:
            members[name] = _tuplegetter(index, f"Value {index} of the row.")
    return _makers.setdefault(names, partial(tuple.__new__, type("Row", (Row,), members)))


def _with_own_names(cls: type[Row], names: tuple[str, ...], values: Iterable[Any]) -> Row:
    row = tuple.__new__(cls, values)
    object.__setattr__(row, "_fields", names)
    return row


def _no_field(name: str, names: tuple[str, ...]) -> str:
    if not names:
        return f"the row has no field {name!r}, only values without names: row[0] is the first one"
    return f"the row has no field {name!r}, only {names}; row.get({name!r}) gives None then"


def _as_dicts(value: Any) -> Any:
    if isinstance(value, Row):
        return value.asDict(True)
    if isinstance(value, list):
        return list(map(_as_dicts, value))
    if isinstance(value, dict):
        return {key: _as_dicts(inner) for key, inner in value.items()}
    return value
