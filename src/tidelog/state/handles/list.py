"""List state: an ordered list of tuples per key, with the interface of Spark's `ListState`.

Invariants: an append is blind (nothing is read from the table), elements stay in order, and a row
has a bounded number of elements. A row is numbered by the backend's sequence number or, where that
row is full, by the next free number: each row of a flush raises the sequence number by one, so no
later flush gives a number again.
"""

from collections.abc import Iterator
from typing import Any, Final

from tidelog.changelog.change import prefix_end
from tidelog.changelog.state_rows import StateRows
from tidelog.changelog.write_buffer import SLICE_ROWS
from tidelog.state.backend import KeyedBackend
from tidelog.state.handles.keyed import KeyedRows, register
from tidelog.state.schema.schema import Schema, list_codec, parse_schema
from tidelog.state.ttl import list_expired

MOST_ELEMENTS: Final = SLICE_ROWS
"""Elements of a row: it is encoded and decoded in one go."""
_POSITION_BYTES: Final = 8


def append(backend: KeyedBackend, rows: StateRows, prefix: bytes, elements: list[Any]) -> bool:
    """Append elements to the list at the prefix; whether they are the first since a flush."""
    position = int(backend.seqno)
    first = rows.changed(prefix + position.to_bytes(_POSITION_BYTES, "big")) is None
    at = 0
    while at < len(elements):
        row = prefix + position.to_bytes(_POSITION_BYTES, "big")
        # A row of this number exists only when it was put since the last flush, so this is a
        # look-up in the buffer; its list belongs to the buffer and may grow in place.
        held = rows.changed(row)
        if held is None:
            held = elements[at : at + MOST_ELEMENTS]
            rows.put(row, held)
            added, counted = len(held), len(held) - 1
        else:
            more = elements[at : at + MOST_ELEMENTS - len(held)]
            held.extend(more)
            added = counted = len(more)
        if counted > 0:
            backend.grew(counted, held[-1])
        at += added
        position += 1
    return first


class ListState:
    """A list for the current key; its rows are `keyed`, each with several elements."""

    def __init__(
        self, backend: KeyedBackend, name: str, schema: Schema, ttl_ms: int | None = None
    ) -> None:
        values = parse_schema(schema, name)
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
        elements = self._hold(newState)
        self.clear()
        self._append(elements)

    def appendValue(self, newState: tuple[Any, ...]) -> None:
        """Append one element."""
        self._append(self._hold([newState]))

    def appendList(self, newState: list[tuple[Any, ...]]) -> None:
        """Append all elements of `newState` to the list, in their order."""
        self._append(self._hold(newState))

    def clear(self) -> None:
        """Remove the list."""
        for key, _ in list(self._scan()):
            self.keyed.rows.delete(key)

    def _hold(self, values: list[tuple[Any, ...]]) -> list[Any]:
        """Elements as rows hold them; raises StateSchemaError before anything is changed."""
        return list(map(self.element.hold, values))

    def _append(self, elements: list[Any]) -> None:
        append(self._backend, self.keyed.rows, self.keyed.row(), elements)

    def _scan(self) -> Iterator[tuple[bytes, list[Any]]]:
        prefix = self.keyed.row()
        return self.keyed.rows.scan(prefix, prefix_end(prefix))
