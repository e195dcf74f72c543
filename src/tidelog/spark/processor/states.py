"""The states of a function on Spark: the calls of the embedded handles, over the states of pyspark.

Invariants: what is read equals what was written, as tuples of the schema; a list or map is read
whole before its first element is handed out, so it may be changed meanwhile. Elements of a list
come in the order of their appends, entries of a map in that of their keys' msgpack bytes, as
embedded.
"""

from collections.abc import Iterator
from typing import Any

from tidelog.spark.processor.schema import SparkSchema, plain


class _SparkState:
    """What value, list and map states share; `state` is pyspark's."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def exists(self) -> bool:
        """Whether the key has something in the state that has not expired."""
        return bool(self._state.exists())

    def clear(self) -> None:
        """Remove all that the key has in the state."""
        self._state.clear()


class SparkValueState(_SparkState):
    """`tidelog.state.handles.keyed.ValueState` on Spark; `state` is pyspark's."""

    def __init__(self, state: Any, schema: SparkSchema) -> None:
        super().__init__(state)
        self._schema = schema

    def get(self) -> tuple[Any, ...] | None:
        """The value, or None."""
        found = self._state.get()
        return None if found is None else plain(tuple(found))

    def update(self, newValue: tuple[Any, ...]) -> None:
        """Set the value; raises StateSchemaError when it does not fit the schema."""
        self._state.update(self._schema.check(newValue))


class SparkListState(_SparkState):
    """`tidelog.state.handles.list.ListState` on Spark; `state` is pyspark's."""

    def __init__(self, state: Any, schema: SparkSchema) -> None:
        super().__init__(state)
        self._schema = schema

    def get(self) -> Iterator[tuple[Any, ...]]:
        """The elements in order."""
        return iter([plain(tuple(element)) for element in self._state.get()])

    def put(self, newState: list[tuple[Any, ...]]) -> None:
        """Replace the list."""
        elements = self._checked(newState)
        if elements:
            self._state.put(elements)
        else:
            self._state.clear()  # Spark refuses an empty list.

    def appendValue(self, newState: tuple[Any, ...]) -> None:
        """Append one element."""
        self._state.appendValue(self._schema.check(newState))

    def appendList(self, newState: list[tuple[Any, ...]]) -> None:
        """Append all elements of `newState` to the list, in their order."""
        elements = self._checked(newState)
        if elements:
            self._state.appendList(elements)

    def _checked(self, values: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        return list(map(self._schema.check, values))


Entry = tuple[tuple[Any, ...], tuple[Any, ...]]


class SparkMapState(_SparkState):
    """`tidelog.state.handles.map.MapState` on Spark; `state` is pyspark's."""

    def __init__(self, state: Any, keys: SparkSchema, values: SparkSchema) -> None:
        super().__init__(state)
        self._keys = keys
        self._values = values

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The value of a user key, or None."""
        found = self._state.getValue(self._keys.check(key))
        return None if found is None else plain(tuple(found))

    def containsKey(self, key: tuple[Any, ...]) -> bool:
        """Whether the user key has a value."""
        return bool(self._state.containsKey(self._keys.check(key)))

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        """Set the value of a user key."""
        self._state.updateValue(self._keys.check(key), self._values.check(value))

    def iterator(self) -> Iterator[Entry]:
        """Entries in the byte order of their keys; entries may be changed while it runs."""
        encode = self._keys.codec.encode
        entries = [
            (plain(tuple(key)), plain(tuple(value))) for key, value in self._state.iterator()
        ]
        return iter(sorted(entries, key=lambda entry: encode(entry[0])))

    def keys(self) -> Iterator[tuple[Any, ...]]:
        """The user keys."""
        return (key for key, _ in self.iterator())

    def values(self) -> Iterator[tuple[Any, ...]]:
        """The values of all entries of the map, in the order of `iterator`."""
        return (value for _, value in self.iterator())

    def removeKey(self, key: tuple[Any, ...]) -> None:
        """Remove a user key."""
        self._state.removeKey(self._keys.check(key))
