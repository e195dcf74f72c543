"""Value state: one tuple per key; interface of Spark's `ValueState`."""

from typing import Any

from tidelog.state.backend import KeyedBackend
from tidelog.state.handles.keyed import KeyedRows, register
from tidelog.state.schema.codec import value_codec
from tidelog.state.schema.schema import Schema, parse_schema


class ValueState:
    """A single value for the current key; its rows are `keyed`."""

    def __init__(
        self, backend: KeyedBackend, name: str, schema: Schema, ttl_ms: int | None = None
    ) -> None:
        values = parse_schema(schema)
        info = register(backend, name, "value", (values,), ttl_ms)
        self.keyed = KeyedRows(backend, info, value_codec(values, ttl_ms, backend.now_ms))

    def exists(self) -> bool:
        """Whether the key has a value that has not expired."""
        return self.get() is not None

    def get(self) -> tuple[Any, ...] | None:
        """The value, or None."""
        keyed = self.keyed
        held = keyed.rows.get(keyed.row())
        return None if held is None else keyed.codec.read(held)

    def update(self, newValue: tuple[Any, ...]) -> None:
        """Set the value; raises StateSchemaError when it does not fit the schema."""
        keyed = self.keyed
        keyed.rows.put(keyed.row(), keyed.codec.hold(newValue))

    def clear(self) -> None:
        """Remove the value."""
        self.keyed.rows.delete(self.keyed.row())
