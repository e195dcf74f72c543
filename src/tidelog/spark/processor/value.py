"""Value state over Spark's.

Invariant: what is read equals what was written, as a tuple of the schema.
"""

from typing import Any

from tidelog.spark.processor.schema import SparkSchema, plain


class SparkValueState:
    """`tidelog.state.value.ValueState` on Spark; `state` is pyspark's."""

    def __init__(self, state: Any, schema: SparkSchema) -> None:
        self._state = state
        self._schema = schema

    def exists(self) -> bool:
        """Whether the key has a value that has not expired."""
        return bool(self._state.exists())

    def get(self) -> tuple[Any, ...] | None:
        """The value, or None."""
        found = self._state.get()
        return None if found is None else plain(tuple(found))

    def update(self, newValue: tuple[Any, ...]) -> None:
        """Set the value; raises StateSchemaError when it does not fit the schema."""
        self._state.update(self._schema.check(newValue))

    def clear(self) -> None:
        """Remove the value."""
        self._state.clear()
