"""Map state: a map of tuples to tuples per key, with the interface of Spark's `MapState`.

Invariant: every entry is a row of its own, so changing one entry logs one change, whatever the
size of the map.
"""

from collections.abc import Iterator
from typing import Any

from tidelog.changelog.change import prefix_end
from tidelog.state.backend import KeyedBackend
from tidelog.state.handles.keyed import KeyedRows, register
from tidelog.state.schema.schema import Schema, parse_schema, value_codec


class MapState:
    """A map for the current key; its rows are `keyed`, each with a `user_key`."""

    def __init__(
        self,
        backend: KeyedBackend,
        name: str,
        key_schema: Schema,
        value_schema: Schema,
        ttl_ms: int | None = None,
    ) -> None:
        self.user_key = parse_schema(key_schema, name)
        values = parse_schema(value_schema, name)
        info = register(backend, name, "map", (self.user_key, values), ttl_ms)
        codec = value_codec(values, ttl_ms, backend.now_ms)
        self.keyed = KeyedRows(backend, info, codec, scanned=True)

    def exists(self) -> bool:
        """Whether the map has an entry that has not expired."""
        return next(self.iterator(), None) is not None

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The value of a user key, or None."""
        keyed = self.keyed
        held = keyed.rows.get(self._row(key))
        return None if held is None else keyed.codec.read(held)

    def containsKey(self, key: tuple[Any, ...]) -> bool:
        """Whether the user key has a value."""
        return self.getValue(key) is not None

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        """Set the value of a user key."""
        self._put_held(self.user_key.store(key), self.keyed.codec.hold(value))

    def _put_held(self, entry: bytes, value: Any) -> None:
        """Set the value of an encoded user key, as rows hold it; None removes it."""
        self.keyed.rows.put(self.keyed.row() + entry, value)

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Entries in the byte order of their keys; entries may be changed while it runs."""
        keyed = self.keyed
        prefix = keyed.row()
        for row, held in keyed.rows.scan(prefix, prefix_end(prefix)):
            value = keyed.codec.read(held)
            if value is not None:
                yield self.user_key.decode(row[len(prefix) :]), value

    def keys(self) -> Iterator[tuple[Any, ...]]:
        """The user keys."""
        return (key for key, _ in self.iterator())

    def values(self) -> Iterator[tuple[Any, ...]]:
        """The values of all entries of the map, in the order of `iterator`."""
        return (value for _, value in self.iterator())

    def removeKey(self, key: tuple[Any, ...]) -> None:
        """Remove a user key."""
        self._put_held(self.user_key.store(key), None)

    def clear(self) -> None:
        """Remove all entries."""
        prefix = self.keyed.row()
        for row, _ in list(self.keyed.rows.scan(prefix, prefix_end(prefix))):
            self.keyed.rows.delete(row)

    def _row(self, key: tuple[Any, ...]) -> bytes:
        return self.keyed.row() + self.user_key.store(key)
