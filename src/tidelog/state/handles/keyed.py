"""Keyed states: value, list, map, reducing and aggregating state, and the rows of all.

Invariants:
- a state touches only rows of the backend's current key;
- what is reduced or aggregated is combined in the write buffer, so a flush logs the combined value
  once, never the elements;
- an append to a list is blind (nothing is read from the table), elements stay in order, and a row
  has a bounded number of elements. A row is numbered by the backend's sequence number or, where
  that row is full, by the next free number: each row of a flush raises the sequence number by one,
  so no later flush gives a number again;
- every entry of a map is a row of its own, so changing one entry logs one change, whatever the size
  of the map.
"""

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, Final, Generic, Protocol, TypeVar

from tidelog.changelog.change import prefix_end
from tidelog.changelog.state_rows import StateRows
from tidelog.changelog.write_buffer import SLICE_ROWS
from tidelog.checkpoint.manifest import StateInfo
from tidelog.state.backend import KeyedBackend
from tidelog.state.first_rows import FirstRows
from tidelog.state.registry import POSITIONS
from tidelog.state.schema.schema import Schema, ValueCodec, list_codec, parse_schema, value_codec
from tidelog.state.ttl import Expired, TtlSweep, list_expired, value_expired
from tidelog.table.port import Table

Row = tuple[Any, ...]
In = TypeVar("In")
Out = TypeVar("Out")

MAX_ELEMENTS: Final = SLICE_ROWS
"""Elements of a list's row: it is encoded and decoded in one go."""
_POSITION_BYTES: Final = 8


class KeyedRows:
    """Rows of one state, addressed by the backend's current key."""

    __slots__ = ("_backend", "_state", "codec", "rows")

    def __init__(
        self,
        backend: KeyedBackend,
        info: StateInfo,
        codec: ValueCodec,
        *,
        scanned: bool = False,
        cached: bool = True,
        expired: Expired = value_expired,
        hidden: bool = False,
    ) -> None:
        self._backend = backend
        self._state = info.id.to_bytes(2, "big")
        self.codec = codec
        self.rows: StateRows = backend.rows(
            codec.encode, codec.decode, scanned=scanned, cached=cached, hidden=hidden
        )
        if info.ttl_ms is not None:
            backend.sweep(
                TtlSweep(backend.table, self.rows, self._state, backend.owned, info.ttl_ms, expired)
            )

    @property
    def table(self) -> Table:
        return self._backend.table

    def row(self) -> bytes:
        """Row key of the current key; for scanned states the prefix of its rows."""
        backend = self._backend
        return backend.key_prefix + self._state + backend.key

    def row_of(self, prefix: bytes, key: bytes) -> bytes:
        """Row key of an encoded key in the key group that `prefix` stands for."""
        return prefix + self._state + key


class ValueHandle:
    """A single value for the current key, with the interface of Spark's `ValueState`."""

    def __init__(
        self,
        backend: KeyedBackend,
        name: str,
        schema: Schema,
        ttl_ms: int | None = None,
        migrate: Callable[[Any], Any] | None = None,
    ) -> None:
        values = parse_schema(schema, name)
        info = backend.registry.register(name, "value", (values.schema,), ttl_ms, migrate)
        self.keyed = KeyedRows(backend, info, value_codec(values, ttl_ms, backend.now_ms))

    def exists(self) -> bool:
        """Whether the key has a value that has not expired."""
        return self.get() is not None

    def get(self) -> Row | None:
        keyed = self.keyed
        stored_value = keyed.rows.get(keyed.row())
        return None if stored_value is None else keyed.codec.read(stored_value)

    def update(self, newValue: Row) -> None:
        """Set the value; raises StateSchemaError when it does not fit the schema."""
        keyed = self.keyed
        keyed.rows.put(keyed.row(), keyed.codec.hold(newValue))

    def clear(self) -> None:
        self.keyed.rows.delete(self.keyed.row())


def append(backend: KeyedBackend, rows: StateRows, prefix: bytes, elements: list[Any]) -> bool:
    """Append elements to the list at the prefix; whether they are the first since a flush."""
    position = int(backend.seqno)
    first = rows.changed(prefix + _encoded_position(position)) is None
    start = 0
    while start < len(elements):
        row = prefix + _encoded_position(position)
        # A row of this number exists only when it was put since the last flush, so this is a
        # look-up in the buffer; its list belongs to the buffer and may grow in place.
        row_elements = rows.changed(row)
        if row_elements is None:
            row_elements = elements[start : start + MAX_ELEMENTS]
            rows.put(row, row_elements)
            added, counted = len(row_elements), len(row_elements) - 1
        else:
            more = elements[start : start + MAX_ELEMENTS - len(row_elements)]
            row_elements.extend(more)
            added = counted = len(more)
        if counted > 0:
            backend.buffer.grew(counted, row_elements[-1])
        start += added
        position += 1
    return first


def _encoded_position(position: int) -> bytes:
    return position.to_bytes(_POSITION_BYTES, "big")


class ListHandle:
    """A list for the current key; its rows are `keyed`, each with several elements."""

    def __init__(
        self,
        backend: KeyedBackend,
        name: str,
        schema: Schema,
        ttl_ms: int | None = None,
        migrate: Callable[[Any], Any] | None = None,
    ) -> None:
        values = parse_schema(schema, name)
        self._backend = backend
        info = backend.registry.register(name, "list", (values.schema,), ttl_ms, migrate)
        self.element, rows = list_codec(values, ttl_ms, backend.now_ms)
        self.keyed = KeyedRows(
            backend, info, rows, scanned=True, cached=False, expired=list_expired
        )
        self.bounds = FirstRows(self.keyed.rows)

    def exists(self) -> bool:
        """Whether the list has an element that has not expired."""
        return next(self.get(), None) is not None

    def get(self) -> Iterator[Row]:
        """The elements in order."""
        read = self.element.read
        for _, elements in self.bounds.scan(self.keyed.row()):
            for element in list(elements):
                value = read(element)
                if value is not None:
                    yield value

    def put(self, newState: list[Row]) -> None:
        """Replace the list."""
        elements = self._hold(newState)
        self.clear()
        append_elements(self._backend, self, elements)

    def appendValue(self, newState: Row) -> None:
        append_elements(self._backend, self, self._hold([newState]))

    def appendList(self, newState: list[Row]) -> None:
        """Append all elements of `newState` to the list, in their order."""
        append_elements(self._backend, self, self._hold(newState))

    def clear(self) -> None:
        """Remove the list."""
        self.bounds.clear(self.keyed.row())

    def _hold(self, values: list[Row]) -> list[Any]:
        """Elements as rows hold them; raises StateSchemaError before anything is changed."""
        return list(map(self.element.hold, values))


def append_elements(backend: KeyedBackend, state: ListHandle, elements: list[Any]) -> None:
    """Append elements, as rows have them, to the list of the current key."""
    prefix = state.keyed.row()
    first = prefix + _encoded_position(int(backend.seqno))
    state.bounds.expect(prefix, first, prefix_end(prefix))
    append(backend, state.keyed.rows, prefix, elements)


class MapHandle:
    """A map for the current key; its rows are `keyed`, each with a `user_key`."""

    def __init__(
        self,
        backend: KeyedBackend,
        name: str,
        key_schema: Schema,
        value_schema: Schema,
        ttl_ms: int | None = None,
        migrate: Callable[[Any], Any] | None = None,
        *,
        scanned: bool = True,
    ) -> None:
        """One that is not `scanned` has no entries to go through: `stored_entries` alone."""
        self.user_key = parse_schema(key_schema, name)
        values = parse_schema(value_schema, name)
        schemas = self.user_key.schema, values.schema
        info = backend.registry.register(name, "map", schemas, ttl_ms, migrate)
        codec = value_codec(values, ttl_ms, backend.now_ms)
        hidden = name == POSITIONS
        self.keyed = KeyedRows(backend, info, codec, scanned=scanned, hidden=hidden)
        self.entries = FirstRows(self.keyed.rows)

    def exists(self) -> bool:
        """Whether the map has an entry that has not expired."""
        return next(self.iterator(), None) is not None

    def getValue(self, key: Row) -> Row | None:
        """The value of a user key, or None."""
        keyed = self.keyed
        stored_value = keyed.rows.get(self._row(key))
        return None if stored_value is None else keyed.codec.read(stored_value)

    def containsKey(self, key: Row) -> bool:
        """Whether the user key has a value."""
        return self.getValue(key) is not None

    def updateValue(self, key: Row, value: Row) -> None:
        """Set the value of a user key."""
        put_entry(self, self.user_key.store(key), self.keyed.codec.hold(value))

    def iterator(self) -> Iterator[tuple[Row, Row]]:
        """Entries in the byte order of their keys; entries may be changed while it runs."""
        keyed = self.keyed
        prefix = keyed.row()
        for row, stored_value in self.entries.scan(prefix):
            value = keyed.codec.read(stored_value)
            if value is not None:
                yield self.user_key.decode(row[len(prefix) :]), value

    def keys(self) -> Iterator[Row]:
        return map(itemgetter(0), self.iterator())

    def values(self) -> Iterator[Row]:
        """The values of all entries of the map, in the order of `iterator`."""
        return map(itemgetter(1), self.iterator())

    def removeKey(self, key: Row) -> None:
        self.keyed.rows.put(self._row(key), None)

    def clear(self) -> None:
        """Remove all entries."""
        self.entries.clear(self.keyed.row())

    def _row(self, key: Row) -> bytes:
        return self.keyed.row() + self.user_key.store(key)


def put_entry(state: MapHandle, entry: bytes, value: Any) -> None:
    """Set the entry of an encoded key to a value as rows have it; None removes it."""
    prefix = state.keyed.row()
    state.entries.put(prefix, prefix + entry, value)


def stored_entries(state: MapHandle) -> Iterator[tuple[Row, Row]]:
    """The entries that the table has, while the buffer has none: before anything is put."""
    prefix, codec = state.keyed.row(), state.keyed.codec
    for row, data in state.keyed.table.scan(prefix, prefix_end(prefix)):
        if (value := codec.read(codec.decode(data))) is not None:
            yield state.user_key.decode(row[len(prefix) :]), value


class SingleValue(Protocol):
    """What a combined value is kept in: a `ValueHandle`, or the same of another engine."""

    def get(self) -> Row | None: ...
    def update(self, newValue: Row) -> None: ...
    def clear(self) -> None: ...


class _Combined:
    """What all that was added for the current key is combined to."""

    def __init__(self, value: SingleValue) -> None:
        self._value = value

    def exists(self) -> bool:
        """Whether something was added."""
        return self._value.get() is not None

    def clear(self) -> None:
        self._value.clear()


class ReducingState(_Combined):
    """The reduction of all tuples added for the current key."""

    def __init__(self, value: SingleValue, reduce: Callable[[Row, Row], Row]) -> None:
        super().__init__(value)
        self._reduce = reduce

    def get(self) -> Row | None:
        """The reduction so far, or None."""
        return self._value.get()

    def add(self, value: Row) -> None:
        """Combine one more tuple."""
        before = self._value.get()
        self._value.update(value if before is None else self._reduce(before, value))


class AggregatingState(_Combined, Generic[In, Out]):
    """An accumulator; elements and result may be of other types."""

    def __init__(
        self,
        value: SingleValue,
        *,
        create: Callable[[], Row],
        add: Callable[[Row, In], Row],
        result: Callable[[Row], Out],
    ) -> None:
        super().__init__(value)
        self._create = create
        self._add = add
        self._result = result

    def get(self) -> Out | None:
        """The result over all elements, or None when nothing was added."""
        accumulator = self._value.get()
        return None if accumulator is None else self._result(accumulator)

    def add(self, element: In) -> None:
        before = self._value.get()
        self._value.update(self._add(self._create() if before is None else before, element))
