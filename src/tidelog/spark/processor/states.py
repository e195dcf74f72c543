"""The states of a function on Spark: the calls of the embedded handles, over the states of pyspark.

Values are kept as Spark's own types, a column per field, not as bytes of tidelog: so Spark's state
data source shows them, its schema check guards them at every restart, and the checkpoint is the
one Spark would write if it ran the class itself.

Invariants: a type is let through only if Spark returns its values as they were written, the others
are refused by name while the query is built. A list or map is read whole before its first element
is handed out, so it may be changed meanwhile. Elements of a list come in the order of their
appends, entries of a map in that of their keys' msgpack bytes, as embedded.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tidelog.errors import ConfigError
from tidelog.state.schema.ddl import quoted_column
from tidelog.state.schema.schema import Schema, TupleCodec, parse_schema

KEPT: Final = frozenset(
    {"boolean", "tinyint", "smallint", "int", "bigint", "double", "string", "binary", "date"}
)
"""Scalar types whose values Spark returns as they were written."""

_NESTED: Final = frozenset({"array", "struct"})
_CHANGED: Final = {
    "float": ("keeps 32 bits of a number that has 64 embedded", "double"),
    "decimal": ("rewrites the number to its own scale", "string, or bigint of the smallest unit"),
    "timestamp": ("drops its time zone", "bigint with milliseconds"),
    "map": ("forgets the order of its entries", "map state, or array<struct<key:..,value:..>>"),
}
"""Types that Spark takes and changes: how, and what to use instead."""

_TYPE_WORD: Final = re.compile(r"(?:^|[<,:])([a-z]+)(?=$|[<>,(])")


@dataclass(frozen=True, slots=True)
class SparkSchema:
    """One schema of a state, on both sides."""

    codec: TupleCodec
    """tidelog's own check: what does not fit embedded does not fit on Spark."""
    ddl: str
    """For Spark; every column may be null, as embedded."""

    def check(self, value: Any) -> tuple[Any, ...]:
        """The value as a tuple of the schema; raises StateSchemaError."""
        return self.codec.check(value)


def spark_schema(state: str, schema: Schema) -> SparkSchema:
    """Raises ConfigError for a type that Spark would change, StateSchemaError for no schema."""
    codec = parse_schema(schema)
    for field in codec.fields:
        for word in _TYPE_WORD.findall(field.type_name):
            if word in KEPT or word in _NESTED:
                continue
            change, instead = _CHANGED[word]
            raise ConfigError(
                f"field {field.name!r} of state {state!r}",
                expected="a type that Spark returns as it was written",
                found=f"{field.type_name}: Spark {change}",
                action=f"use {instead}",
            )
        if "(" in field.type_name:
            raise ConfigError(
                f"field {field.name!r} of state {state!r}",
                expected="a type without a length",
                found=field.type_name,
                action="leave the length out",
            )
    return SparkSchema(codec, ", ".join(quoted_column(f.name, f.type_name) for f in codec.fields))


def _plain(value: Any) -> Any:
    """A value read from Spark's state as it is embedded: structs are tuples, binary is bytes."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, list):
        return list(map(_plain, value))
    return bytes(value) if isinstance(value, bytearray) else value


class _SparkState:
    """What value, list and map states share; `state` is pyspark's."""

    def __init__(self, state: Any, values: SparkSchema) -> None:
        self._state = state
        self._values = values

    def exists(self) -> bool:
        """Whether the key has something in the state that has not expired."""
        return bool(self._state.exists())

    def clear(self) -> None:
        """Remove all that the key has in the state."""
        self._state.clear()


class SparkValueState(_SparkState):
    """`tidelog.state.handles.keyed.ValueState` on Spark; `state` is pyspark's."""

    def get(self) -> tuple[Any, ...] | None:
        found = self._state.get()
        return None if found is None else _plain(tuple(found))

    def update(self, newValue: tuple[Any, ...]) -> None:
        self._state.update(self._values.check(newValue))


class SparkListState(_SparkState):
    """`tidelog.state.handles.keyed.ListState` on Spark; `state` is pyspark's."""

    def get(self) -> Iterator[tuple[Any, ...]]:
        return iter([_plain(tuple(element)) for element in self._state.get()])

    def put(self, newState: list[tuple[Any, ...]]) -> None:
        elements = self._checked(newState)
        if elements:
            self._state.put(elements)
        else:
            self._state.clear()  # Spark refuses an empty list.

    def appendValue(self, newState: tuple[Any, ...]) -> None:
        self._state.appendValue(self._values.check(newState))

    def appendList(self, newState: list[tuple[Any, ...]]) -> None:
        elements = self._checked(newState)
        if elements:
            self._state.appendList(elements)

    def _checked(self, values: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        return list(map(self._values.check, values))


Entry = tuple[tuple[Any, ...], tuple[Any, ...]]


class SparkMapState(_SparkState):
    """`tidelog.state.handles.keyed.MapState` on Spark; `state` is pyspark's."""

    def __init__(self, state: Any, keys: SparkSchema, values: SparkSchema) -> None:
        super().__init__(state, values)
        self._keys = keys

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        found = self._state.getValue(self._keys.check(key))
        return None if found is None else _plain(tuple(found))

    def containsKey(self, key: tuple[Any, ...]) -> bool:
        return bool(self._state.containsKey(self._keys.check(key)))

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        self._state.updateValue(self._keys.check(key), self._values.check(value))

    def iterator(self) -> Iterator[Entry]:
        encode = self._keys.codec.encode
        entries = [
            (_plain(tuple(key)), _plain(tuple(value))) for key, value in self._state.iterator()
        ]
        return iter(sorted(entries, key=lambda entry: encode(entry[0])))

    def keys(self) -> Iterator[tuple[Any, ...]]:
        return (key for key, _ in self.iterator())

    def values(self) -> Iterator[tuple[Any, ...]]:
        return (value for _, value in self.iterator())

    def removeKey(self, key: tuple[Any, ...]) -> None:
        self._state.removeKey(self._keys.check(key))
