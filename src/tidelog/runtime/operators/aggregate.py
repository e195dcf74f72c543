"""Running aggregates per key."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from heapq import merge
from operator import add
from typing import Any, Final, cast

from tidelog.changelog.change import prefix_end
from tidelog.changelog.row_memory import BufferedRow, row_key
from tidelog.runtime.channels.buffers import next_values
from tidelog.runtime.channels.copies import copies_of
from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.runtime.operators.answers import Combining
from tidelog.runtime.operators.operator import OperatorContext
from tidelog.runtime.operators.turn import OUTPUT_BYTES, OUTPUT_RECORDS, PAUSE
from tidelog.runtime.user_code import map_all
from tidelog.state.backend import KeyedBackend
from tidelog.state.key_groups import decode_keys
from tidelog.state.objects.values import UntypedValues
from tidelog.state.registry import Definition

_GROUPED_AT_ONCE: Final = 65_536
_SORTED_AT_ONCE: Final = 8192
_FIRST_SHARE: Final = 2
"""One of so many final values of a buffer is taken before the bytes of any are measured."""

_Runs = dict[bytes, list[list[BufferedRow]]]
"""Rows by their key group, in lists each of which is sorted by key."""


class Aggregate(Combining):
    """Combines the values of a key; emits the final value of every key at the end of the data.

    Works on buffers: one look-up for all keys of a buffer, one write back.
    """

    state: Final = Definition("aggregate", "aggregate", ("msgpack",))
    value_option = "aggregate(..., value_type=...)"
    """What declares the types of the values."""

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
        self.emits_at_end = not emit_updates

    def open(self, context: OperatorContext) -> None:
        backend = context.backend
        self._backend = backend
        self._values = UntypedValues(backend, self.state, self.value_option)
        self._rows, self._state = self._values.rows(), self._values.prefix
        self._look(context.operator, self._values)
        self._prefixes = {group: group + self._state for group in backend.owned.encoded()}
        """The beginning of the row keys of each key group."""

    def process(self, batch: Batch) -> Iterable[Batch]:
        keyed = cast(KeyedBatch, batch)
        rows = list(map(add, map(self._prefixes.__getitem__, keyed.groups), keyed.keys))
        values = map_all(self._value_of, keyed.records)
        self._values.check_first(values)
        try:
            updated = self._rows.combine_many(rows, values, self._combine)
        except Exception:
            # Values of a changed type often cannot be combined with those that are stored.
            self._values.check_combined(values)
            raise
        if not self._emit_updates:
            return ()
        newest = {row.key: row.value for row in updated}
        values = copies_of(list(newest.values()))  # what follows may change them, and state stays
        return (Batch(list(zip(_keys_of(newest), values, strict=True))),)

    def finish(self) -> Iterable[Batch]:
        self._answers.warn()
        if self._emit_updates:
            return
        for _ in self._backend.flush_in_steps():
            yield PAUSE
        done = _Emitted(self._backend)
        runs = yield from self._sorted_runs()
        values, first = self._not_emitted(done, runs), 1
        while chunk := next_values(values, OUTPUT_RECORDS, OUTPUT_BYTES, first=first):
            rows = [row for row, _ in chunk]
            done.put(rows)
            yield Batch(list(zip(_keys_of(rows), [value for _, value in chunk], strict=True)))
            yield PAUSE
            # Keys are spread at random, so sizes do not change at once.
            first = len(chunk) // _FIRST_SHARE
        done.clear()

    def _sorted_runs(self) -> Generator[Batch, None, _Runs]:
        """Rows in memory by their key group; yields only `PAUSE`."""
        groups: dict[bytes, list[BufferedRow]] = defaultdict(list)
        repeats = not self._rows.is_complete
        for rows in self._rows.here():
            for chunk in _chunks(rows, _GROUPED_AT_ONCE):
                for row in chunk:
                    groups[row.key[:2]].append(row)
                yield PAUSE
        runs: _Runs = {}
        for group, of_group in groups.items():
            rows = list(set(of_group)) if repeats else of_group
            runs[group] = list(_chunks(rows, _SORTED_AT_ONCE))
            for run in runs[group]:
                run.sort(key=row_key)
                yield PAUSE
        return runs

    def _not_emitted(self, done: "_Emitted", runs_of_group: _Runs) -> Iterator[tuple[bytes, Any]]:
        """Rows that are still to be emitted, key group by key group."""
        for group in self._backend.owned.encoded():
            prefix = group + self._state
            after, end = done.after(prefix), prefix_end(prefix)
            runs = runs_of_group.pop(group, [])
            if after != prefix:
                for run in runs:
                    del run[: bisect_left(run, after, key=row_key)]
            rows = iter(runs[0]) if len(runs) == 1 else merge(*runs, key=row_key)
            yield from self._rows.scan_with(rows, after, end)


class _Emitted:
    """How far the final values were emitted, by key group: a checkpoint may come in between."""

    def __init__(self, backend: KeyedBackend) -> None:
        self._owned = backend.owned
        info = backend.registry.register("$emitted", "emitted", ("msgpack",))
        self._state = info.id.to_bytes(2, "big")
        self._rows = backend.rows(bytes, bytes, hidden=True)

    def after(self, prefix: bytes) -> bytes:
        """The first row key of a key group that was not emitted."""
        last = self._rows.get(prefix[:2] + self._state)
        return prefix if last is None else last + b"\x00"

    def put(self, rows: list[bytes]) -> None:
        end = 0
        while end < len(rows):
            group = rows[end][:2]
            end = bisect_left(rows, prefix_end(group), end)
            self._rows.put(group + self._state, rows[end - 1])

    def clear(self) -> None:
        """Forget all marks: every value was emitted, and the operator is finished."""
        for group in self._owned.encoded():
            row = group + self._state
            if self._rows.get(row) is not None:
                self._rows.delete(row)


def _chunks(rows: list[BufferedRow], size: int) -> Iterator[list[BufferedRow]]:
    return (rows[start : start + size] for start in range(0, len(rows), size))


def _keys_of(rows: Iterable[bytes]) -> list[Any]:
    return decode_keys([row[4:] for row in rows])
