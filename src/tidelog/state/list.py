"""List state: an ordered list of tuples per key; interface of Spark's `ListState`.

Invariant: an append writes one new row, numbered by the backend's sequence number, which grows
from flush to flush: appends are blind (no read), stay in order, and never rewrite the list.
"""

from collections.abc import Iterator
from typing import Any

from tidelog.changelog.change import prefix_end
from tidelog.state.backend import KeyedBackend
from tidelog.state.codec import list_codec
from tidelog.state.keyed import KeyedRows, register
from tidelog.state.schema import Schema, parse_schema
from tidelog.state.ttl import list_expired

_POSITION_BYTES = 8


class ListState:
    """A list for the current key."""

    def __init__(
        self, backend: KeyedBackend, name: str, schema: Schema, ttl_ms: int | None = None
    ) -> None:
        values = parse_schema(schema)
        info = register(backend, name, "list", (values,), ttl_ms)
        self._element, rows = list_codec(values, ttl_ms, backend.now_ms)
        self._keyed = KeyedRows(
            backend, info, rows, scanned=True, cached=False, expired=list_expired
        )

    def exists(self) -> bool:
        """Whether the list has an element that has not expired."""
        return next(self.get(), None) is not None

    def get(self) -> Iterator[tuple[Any, ...]]:
        """The elements in order."""
        read = self._element.read
        for _, held in self._scan():
            for element in list(held):
                value = read(element)
                if value is not None:
                    yield value

    def put(self, newState: list[tuple[Any, ...]]) -> None:
        """Replace the list."""
        elements = self._hold(newState)
        self.clear()
        self._append(elements)

    def appendValue(self, newState: tuple[Any, ...]) -> None:
        """Append one element."""
        self._append(self._hold([newState]))

    def appendList(self, newState: list[tuple[Any, ...]]) -> None:
        """Append elements."""
        self._append(self._hold(newState))

    def clear(self) -> None:
        """Remove the list."""
        for key, _ in list(self._scan()):
            self._keyed.rows.delete(key)

    def _hold(self, values: list[tuple[Any, ...]]) -> list[Any]:
        return list(map(self._element.hold, values))

    def _append(self, elements: list[Any]) -> None:
        if not elements:
            return
        keyed = self._keyed
        row = keyed.row() + keyed.position().to_bytes(_POSITION_BYTES, "big")
        # A row of this position exists only when it was put since the last flush, so this is a
        # look-up in the buffer; its list belongs to the buffer and may grow in place.
        held = keyed.rows.changed(row)
        if held is None:
            keyed.rows.put(row, elements)
        else:
            held.extend(elements)
            keyed.grew(len(elements))

    def _scan(self) -> Iterator[tuple[bytes, list[Any]]]:
        prefix = self._keyed.row()
        return self._keyed.rows.scan(prefix, prefix_end(prefix))
