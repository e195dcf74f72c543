"""Running aggregates per key."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import msgspec

from tidelog.changelog.change import prefix_end
from tidelog.runtime.blame import every
from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.runtime.operators.operator import OUTPUT_RECORDS, Operator, OperatorContext
from tidelog.state.key_groups import decode_key


class Aggregate(Operator):
    """Combines the values of a key; emits the final value of every key at the end of the data.

    Works on buffers: one look-up for all keys of a buffer, one write back.
    """

    def __init__(
        self,
        value_of: Callable[[Any], Any],
        combine: Callable[[Any, Any], Any],
        *,
        emit_updates: bool = False,
    ) -> None:
        self._value_of = value_of
        self._combine = combine
        self._emit_updates = emit_updates

    def open(self, context: OperatorContext) -> None:
        backend = context.backend
        self._backend = backend
        info = backend.registry.register("aggregate", "aggregate", ("msgpack",))
        self._state = info.id.to_bytes(2, "big")
        decode = msgspec.msgpack.Decoder().decode
        self._rows = backend.rows(info, msgspec.msgpack.Encoder().encode, decode, scanned=False)

    def process(self, batch: Batch) -> Iterable[Batch]:
        keyed = cast(KeyedBatch, batch)
        state, combine = self._state, self._combine
        rows = [group + state + key for group, key in zip(keyed.groups, keyed.keys, strict=True)]
        values = every(self._value_of, keyed.records)
        before = self._rows.get_many(rows)
        # The usual case, distinct keys with a value each, runs without a loop in Python.
        updated = dict(zip(rows, values, strict=True))
        if len(updated) < len(rows) or None in before:
            updated = self._combined(rows, before, values)
        else:
            updated = dict(zip(rows, map(combine, before, values), strict=True))
        self._rows.put_many(updated)
        if not self._emit_updates:
            return ()
        return (Batch([(_key_of(row), value) for row, value in updated.items()]),)

    def _combined(
        self, rows: list[bytes], before: list[Any | None], values: list[Any]
    ) -> dict[bytes, Any]:
        combine = self._combine
        updated: dict[bytes, Any] = {}
        for row, stored, value in zip(rows, before, values, strict=True):
            # A key that occurs twice in the buffer was looked up before its first update.
            known = updated.get(row, stored)
            updated[row] = value if known is None else combine(known, value)
        return updated

    def finish(self) -> Iterable[Batch]:
        if self._emit_updates:
            return
        # The final values are read from the table alone.
        self._backend.flush()
        records = self._all()
        while chunk := list(itertools.islice(records, OUTPUT_RECORDS)):
            yield Batch(chunk)

    def _all(self) -> Iterator[tuple[Any, Any]]:
        decode = msgspec.msgpack.Decoder().decode
        owned = self._backend.owned
        for group in range(owned.first, owned.last + 1):
            prefix = group.to_bytes(2, "big") + self._state
            for row, data in self._backend.table.scan(prefix, prefix_end(prefix)):
                yield _key_of(row), decode(data)


def _key_of(row: bytes) -> Any:
    return decode_key(row[4:])
