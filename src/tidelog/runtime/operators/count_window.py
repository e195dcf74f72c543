"""Count windows: a value of every `size` records of a key, in the order in which they came.

Invariant: a key has one row, with the value and the number of its records since the last window.
"""

from collections.abc import Callable, Iterable
from typing import Any, cast

from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.runtime.operators.operator import Operator, OperatorContext
from tidelog.runtime.operators.window import Combine
from tidelog.runtime.user_code import map_all
from tidelog.state.key_groups import decode_key
from tidelog.state.objects.values import UntypedValues
from tidelog.state.registry import Definition


class CountWindow(Operator):
    """Emits (key, value) with the last record of a window; what is left at the end is dropped."""

    state: Definition = ("count-windows", "count-window", ("msgpack",))
    value_option = "aggregate(..., value_type=...)"

    def __init__(self, size: int, value_of: Callable[[Any], Any], combine: Combine) -> None:
        self._size = size
        self._value_of = value_of
        self._combine = combine

    def open(self, context: OperatorContext) -> None:
        registry = context.backend.registry
        info = registry.register(*self.state)
        self._state = info.id.to_bytes(2, "big")
        known = registry.value_types(info, self.value_option)
        self._values = UntypedValues(known, elements=slice(0, 1))
        self._rows = self._values.rows(context.backend, info)
        self._combined = self._values.combining(self._combine)

    def process(self, batch: Batch) -> Iterable[Batch]:
        keyed, state = cast(KeyedBatch, batch), self._state
        values = map_all(self._value_of, keyed.records)
        self._values.check_first(values)
        rows = [group + state + key for group, key in zip(keyed.groups, keyed.keys, strict=True)]
        counted = dict(zip(rows, self._rows.get_many(rows), strict=True))
        full: list[tuple[Any, Any]] = []
        for row, key, value in zip(rows, keyed.keys, values, strict=True):
            held = counted[row]
            if held is None:
                held = counted[row] = [value, 1]
            else:
                held[0] = self._combined(held[0], value)
                held[1] += 1
            if held[1] >= self._size:
                full.append((decode_key(key), held[0]))
                counted[row] = None
        self._rows.put_many(counted)
        self._values.check_new([value for _, value in full])
        return (Batch(full),) if full else ()
