"""List state: an ordered list of tuples per key; interface of Spark's `ListState`.

Invariant: an append never reads or rewrites the list: it adds to rows of this flush alone.
"""

from collections.abc import Iterator
from typing import Any

from tidelog.changelog.change import prefix_end
from tidelog.state.appending import append
from tidelog.state.backend import KeyedBackend
from tidelog.state.handles.keyed import KeyedRows, register
from tidelog.state.schema.codec import list_codec
from tidelog.state.schema.schema import Schema, parse_schema
from tidelog.state.ttl import list_expired


class ListState:
    """A list for the current key; its rows are `keyed`, each with several elements."""

    def __init__(
        self, backend: KeyedBackend, name: str, schema: Schema, ttl_ms: int | None = None
    ) -> None:
        values = parse_schema(schema)
        self._backend = backend
        info = register(backend, name, "list", (values,), ttl_ms)
        self.element, rows = list_codec(values, ttl_ms, backend.now_ms)
        self.keyed = KeyedRows(
            backend, info, rows, scanned=True, cached=False, expired=list_expired
        )

    def exists(self) -> bool:
        """Whether the list has an element that has not expired."""
        return next(self.get(), None) is not None

    def get(self) -> Iterator[tuple[Any, ...]]:
        """The elements in order."""
        read = self.element.read
        for _, held in self._scan():
            for element in list(held):
                value = read(element)
                if value is not None:
                    yield value

    def put(self, newState: list[tuple[Any, ...]]) -> None:
        """Replace the list."""
        self._put_held(self._hold(newState))

    def appendValue(self, newState: tuple[Any, ...]) -> None:
        """Append one element."""
        self._append_held(self._hold([newState]))

    def appendList(self, newState: list[tuple[Any, ...]]) -> None:
        """Append all elements of `newState` to the list, in their order."""
        self._append_held(self._hold(newState))

    def clear(self) -> None:
        """Remove the list."""
        for key, _ in list(self._scan()):
            self.keyed.rows.delete(key)

    def _hold(self, values: list[tuple[Any, ...]]) -> list[Any]:
        """Elements as rows hold them; raises StateSchemaError before anything is changed."""
        return list(map(self.element.hold, values))

    def _put_held(self, elements: list[Any]) -> None:
        """Replace the list."""
        self.clear()
        self._append_held(elements)

    def _append_held(self, elements: list[Any]) -> None:
        """Append elements at the end of the list."""
        append(self._backend, self.keyed.rows, self.keyed.row(), elements)

    def _scan(self) -> Iterator[tuple[bytes, list[Any]]]:
        prefix = self.keyed.row()
        return self.keyed.rows.scan(prefix, prefix_end(prefix))
