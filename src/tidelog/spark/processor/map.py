"""Map state over Spark's.

Invariants: entries come in the order they have embedded, that of their keys' msgpack bytes, while
Spark's own order is another; a map is read whole before its first entry is handed out, so it may be
changed meanwhile.
"""

from collections.abc import Iterator
from typing import Any

from tidelog.spark.processor.schema import SparkSchema, plain

Entry = tuple[tuple[Any, ...], tuple[Any, ...]]


class SparkMapState:
    """`tidelog.state.map.MapState` on Spark; `state` is pyspark's."""

    def __init__(self, state: Any, keys: SparkSchema, values: SparkSchema) -> None:
        self._state = state
        self._keys = keys
        self._values = values

    def exists(self) -> bool:
        """Whether the map has an entry that has not expired."""
        return bool(self._state.exists())

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
        """The values."""
        return (value for _, value in self.iterator())

    def removeKey(self, key: tuple[Any, ...]) -> None:
        """Remove a user key."""
        self._state.removeKey(self._keys.check(key))

    def clear(self) -> None:
        """Remove all entries."""
        self._state.clear()
