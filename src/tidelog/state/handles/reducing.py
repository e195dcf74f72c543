"""Reducing and aggregating state: one combined value per key.

Invariant: elements are combined in the write buffer, so a flush logs the combined value once,
never the elements.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from tidelog.state.backend import KeyedBackend
from tidelog.state.handles.value import ValueState
from tidelog.state.schema.schema import Schema

Row = tuple[Any, ...]
In = TypeVar("In")
Out = TypeVar("Out")


class ReducingState:
    """The reduction of all tuples added for the current key."""

    def __init__(
        self,
        backend: KeyedBackend,
        name: str,
        schema: Schema,
        reduce: Callable[[Row, Row], Row],
        ttl_ms: int | None = None,
    ) -> None:
        self._value = ValueState(backend, name, schema, ttl_ms)
        self._reduce = reduce

    def exists(self) -> bool:
        """Whether something was added."""
        return self._value.exists()

    def get(self) -> Row | None:
        """The reduction so far, or None."""
        return self._value.get()

    def add(self, value: Row) -> None:
        """Combine one more tuple."""
        before = self._value.get()
        self._value.update(value if before is None else self._reduce(before, value))

    def clear(self) -> None:
        """Start anew."""
        self._value.clear()


class AggregatingState(Generic[In, Out]):
    """An accumulator of the given schema; elements and result may be of other types."""

    def __init__(
        self,
        backend: KeyedBackend,
        name: str,
        schema: Schema,
        *,
        create: Callable[[], Row],
        add: Callable[[Row, In], Row],
        result: Callable[[Row], Out],
        ttl_ms: int | None = None,
    ) -> None:
        self._value = ValueState(backend, name, schema, ttl_ms)
        self._create = create
        self._add = add
        self._result = result

    def exists(self) -> bool:
        """Whether something was added."""
        return self._value.exists()

    def get(self) -> Out | None:
        """The result over all elements, or None when nothing was added."""
        accumulator = self._value.get()
        return None if accumulator is None else self._result(accumulator)

    def add(self, element: In) -> None:
        """Add one element to the accumulator."""
        before = self._value.get()
        self._value.update(self._add(self._create() if before is None else before, element))

    def clear(self) -> None:
        """Start anew."""
        self._value.clear()
