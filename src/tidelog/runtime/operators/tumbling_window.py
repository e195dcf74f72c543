"""Tumbling windows that combine a value of every record.

Invariants: a record belongs to one window; windows of a key fire in the order of time, those that
flushes have seen from their rows, the others from memory.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from operator import add
from typing import Any, Final, cast

from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.runtime.operators.operator import TIMERS_PER_STEP, OperatorContext
from tidelog.runtime.operators.outputs import Outputs
from tidelog.runtime.operators.spans import ONCE, Firing, WindowSpan
from tidelog.runtime.operators.window import AggregateWindow, Combine
from tidelog.runtime.user_code import map_all
from tidelog.state.event_time import EventTime
from tidelog.state.handles.timers import KEY, NONE_AHEAD, TIME, decode_time
from tidelog.state.key_groups import decode_key
from tidelog.state.open_windows import OpenWindows

_ROWS_AT_ONCE: Final = 128
"""Windows whose values are read from the table before their size is looked at."""


def aggregate_window(
    span: WindowSpan,
    value_of: Callable[[Any], Any],
    combine: Combine,
    firing: Firing = ONCE,
) -> AggregateWindow:
    """The operator of windows with this span."""
    kind = TumblingWindow if span.tumbling and firing.once else AggregateWindow
    return kind(span, value_of, combine, firing)


class TumblingWindow(AggregateWindow):
    """Windows of one slice each, whose rows and timers are known from each other."""

    scanned = False

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._open = OpenWindows(self._rows, self._state, self._timers, self._span.size_ms)
        context.backend.add_unflushed(self._open)

    def _add(self, batch: KeyedBatch) -> None:
        size, combine = self._span.size_ms, self._combine
        values = map_all(self._value_of, batch.records)
        self._values.check_first(values)
        starts = [time - time % size for time in cast("list[int]", batch.times)]
        keys = list(map(add, batch.groups, batch.keys))
        flushed: list[tuple[int, bytes, Any]] = []
        windows = self._open.of(starts[0])
        last, held = starts[0], windows.values
        try:
            for start, key, value in zip(starts, keys, values, strict=True):
                if start != last:
                    windows = self._open.of(start)
                    last, held = start, windows.values
                before = held.get(key)
                if before is not None:
                    held[key] = combine(before, value)
                elif windows.flushed and key not in held:
                    flushed.append((start, key, value))
                else:
                    held[key] = value
        except Exception:
            # Values of a changed type often cannot be combined with those that are stored.
            self._values.check_combined(values)
            raise
        self._open.updated(len(values), keys[0], values[0])
        if flushed:
            self._add_flushed(flushed)

    def _add_flushed(self, added: list[tuple[int, bytes, Any]]) -> None:
        """Add values to windows that have rows; those that have none are new after all."""
        rows = [self._open.row(key, start) for start, key, _ in added]
        stored = dict(zip(rows, self._rows.get_many(rows), strict=True))
        updated: dict[bytes, Any] = {}
        for (start, key, value), row in zip(added, rows, strict=True):
            if stored[row] is not None:
                stored[row] = updated[row] = self._combined(stored[row], value)
            else:
                held = self._open.of(start).values
                held[key] = self._combined(held.get(key), value)
        self._rows.put_many(updated)
        self._open.updates -= len(updated)

    def _fire(self, event_time: EventTime) -> Iterator[Batch]:
        opened, outputs, size = self._open, Outputs(self._turn), self._span.size_ms
        for start in opened.ended(event_time.watermark):
            yield from self._fire_rows(outputs, start + size - 1)
            # A flush in one of the pauses makes rows of what is left.
            while windows := opened.take(start, TIMERS_PER_STEP):
                self._values.check_new([value for _, value in windows])
                outputs.records += [(decode_key(key[2:]), start, value) for key, value in windows]
                yield from outputs.step(TIMERS_PER_STEP)
            opened.close(start)
        yield from self._fire_rows(outputs, event_time.watermark, event_time.ahead)
        if outputs.records:
            yield outputs.cut()

    def _fire_rows(
        self, outputs: Outputs, limit_ms: int, ahead: Mapping[int, int] = NONE_AHEAD
    ) -> Iterator[Batch]:
        timers = chain.from_iterable(self._timers.expired_rows(limit_ms, ahead))
        while some := list(islice(timers, min(_ROWS_AT_ONCE, TIMERS_PER_STEP))):
            outputs.records += self._taken(some)
            yield from outputs.step(TIMERS_PER_STEP)

    def _taken(self, timers: list[bytes]) -> list[tuple[Any, int, Any]]:
        """The windows of these timers, whose rows are gone with them."""
        before_end = self._span.size_ms - 1
        starts = [decode_time(timer[TIME]) - before_end for timer in timers]
        keys = [timer[:2] + timer[KEY] for timer in timers]
        rows = list(map(self._open.row, keys, starts))
        values = self._rows.get_many(rows)
        self._rows.delete_many(rows)
        self._timers.delete_many(timers)
        return [
            (decode_key(key[2:]), start, value)
            for key, start, value in zip(keys, starts, values, strict=True)
            # Without a row its value was None at a flush; a newer one is yet to come from memory.
            if value is not None or not self._open.has(start, key)
        ]
