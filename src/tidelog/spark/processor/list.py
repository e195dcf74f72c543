"""List state over Spark's.

Invariants: elements come in the order of their appends; a list is read whole before its first
element is handed out, so it may be changed meanwhile, as embedded.
"""

from collections.abc import Iterator
from typing import Any

from tidelog.spark.processor.schema import SparkSchema, plain


class SparkListState:
    """`tidelog.state.list.ListState` on Spark; `state` is pyspark's."""

    def __init__(self, state: Any, schema: SparkSchema) -> None:
        self._state = state
        self._schema = schema

    def exists(self) -> bool:
        """Whether the list has an element that has not expired."""
        return bool(self._state.exists())

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
        """Append elements."""
        elements = self._checked(newState)
        if elements:
            self._state.appendList(elements)

    def clear(self) -> None:
        """Remove the list."""
        self._state.clear()

    def _checked(self, values: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        return list(map(self._schema.check, values))
