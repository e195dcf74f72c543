"""Keyed states of one tuple per key: value, reducing and aggregating state, and the rows of all.

Invariants: a state touches only rows of the backend's current key; elements are combined in the
write buffer, so a flush logs the combined value once, never the elements.
"""

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from tidelog.changelog.state_rows import StateRows
from tidelog.checkpoint.manifest import StateInfo
from tidelog.state.backend import KeyedBackend
from tidelog.state.schema.schema import Schema, TupleCodec, ValueCodec, parse_schema, value_codec
from tidelog.state.ttl import Expired, TtlSweep, value_expired

Row = tuple[Any, ...]
In = TypeVar("In")
Out = TypeVar("Out")


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
    ) -> None:
        self._backend = backend
        self._state = info.id.to_bytes(2, "big")
        self.codec = codec
        self.rows: StateRows = backend.rows(
            codec.encode, codec.decode, scanned=scanned, cached=cached
        )
        if info.ttl_ms is not None:
            backend.sweep(
                TtlSweep(backend.table, self.rows, self._state, backend.owned, info.ttl_ms, expired)
            )

    def row(self) -> bytes:
        """Row key of the current key; for scanned states the prefix of its rows."""
        backend = self._backend
        return backend.key_prefix + self._state + backend.key

    def row_of(self, prefix: bytes, key: bytes) -> bytes:
        """Row key of an encoded key in the key group that `prefix` stands for."""
        return prefix + self._state + key


def register(
    backend: KeyedBackend,
    name: str,
    kind: str,
    schemas: tuple[TupleCodec, ...],
    ttl_ms: int | None = None,
) -> StateInfo:
    """Register a state under the canonical text of its schemas."""
    texts = tuple(schema.schema for schema in schemas)
    return backend.registry.register(name, kind, texts, ttl_ms)


class ValueState:
    """A single value for the current key, with the interface of Spark's `ValueState`."""

    def __init__(
        self, backend: KeyedBackend, name: str, schema: Schema, ttl_ms: int | None = None
    ) -> None:
        values = parse_schema(schema, name)
        info = register(backend, name, "value", (values,), ttl_ms)
        self.keyed = KeyedRows(backend, info, value_codec(values, ttl_ms, backend.now_ms))

    def exists(self) -> bool:
        """Whether the key has a value that has not expired."""
        return self.get() is not None

    def get(self) -> Row | None:
        keyed = self.keyed
        held = keyed.rows.get(keyed.row())
        return None if held is None else keyed.codec.read(held)

    def update(self, newValue: Row) -> None:
        """Set the value; raises StateSchemaError when it does not fit the schema."""
        keyed = self.keyed
        keyed.rows.put(keyed.row(), keyed.codec.hold(newValue))

    def clear(self) -> None:
        self.keyed.rows.delete(self.keyed.row())


class SingleValue(Protocol):
    """What a combined value is kept in: a `ValueState`, or the same of another engine."""

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
        """Add one element to the accumulator."""
        before = self._value.get()
        self._value.update(self._add(self._create() if before is None else before, element))
