"""Tumbling windows that combine a value of every record.

Most windows open and fire between two flushes, so they are in memory, and a flush makes a row and a
timer of each that is there. Invariants: a record belongs to one window; a window that has a row is
not in memory, but for one whose value is None: that has a timer alone, and may come again; windows
of a key fire in the order of time; nothing is looked up for starts of which no row can be.
"""

from collections.abc import Callable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import chain, islice, repeat
from typing import Any, Final, cast

from tidelog.changelog.row_memory import RowSize
from tidelog.changelog.state_rows import StateRows
from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.runtime.operators.operator import TIMERS_PER_STEP, OperatorContext
from tidelog.runtime.operators.outputs import Outputs
from tidelog.runtime.operators.overlaps import Combine
from tidelog.runtime.operators.spans import ONCE, Firing, WindowSpan
from tidelog.runtime.operators.window import AggregateWindow
from tidelog.runtime.user_code import map_all
from tidelog.state.handles.timers import KEY, NONE_AHEAD, TIME, Timers, decode_time, encode_time
from tidelog.state.key_groups import decode_key

_ROWS_AT_ONCE: Final = 128
"""Windows whose values are read from the table before their size is looked at."""
_NEVER: Final = 1 << 64
"""Later than any start."""


def aggregate_window(
    span: WindowSpan, value_of: Callable[[Any], Any], combine: Combine, firing: Firing = ONCE
) -> AggregateWindow:
    kind = TumblingWindow if span.tumbling and firing.once else AggregateWindow
    return kind(span, value_of, combine, firing)


class TumblingWindow(AggregateWindow):
    """Windows of one slice each, whose rows and timers are known from each other."""

    scanned = False

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._open = _OpenWindows(self._rows, self._state, self._timers, self._span.size_ms)
        context.backend.buffer.add_unflushed(self._open)

    def _add(self, batch: KeyedBatch) -> None:
        size, combine, open_windows = self._span.size_ms, self._combine, self._open
        values = map_all(self._value_of, batch.records)
        self._values.check_first(values)
        starts = [time - time % size for time in cast("list[int]", batch.times)]
        keys = batch.group_keys
        touched = list(map(open_windows.of, set(starts)))
        count_before = sum(map(len, touched))
        may_have_rows: list[tuple[int, bytes, Any]] = []
        last: int | None = None
        try:
            for start, key, value in zip(starts, keys, values, strict=True):
                if start != last:
                    last, windows = start, open_windows.of(start)
                    flushed = start in open_windows.flushed
                before = windows.get(key)
                if before is not None:
                    windows[key] = combine(before, value)
                elif flushed and key not in windows:
                    may_have_rows.append((start, key, value))
                else:
                    windows[key] = value
        except Exception:
            # Values of a changed type often cannot be combined with those that are stored.
            self._values.check_combined(values)
            raise
        open_windows.updated(len(values), keys[0], values[0])
        if may_have_rows:
            self._add_stored(may_have_rows)
        open_windows.count += sum(map(len, touched)) - count_before

    def _add_stored(self, added: list[tuple[int, bytes, Any]]) -> None:
        """Add values to windows that have rows; those that have none are new after all."""
        rows = [self._open.row(key, start) for start, key, _ in added]
        combined = dict(zip(rows, self._rows.get_many(rows), strict=True))
        updated: dict[bytes, Any] = {}
        for (start, key, value), row in zip(added, rows, strict=True):
            if combined[row] is not None:
                combined[row] = updated[row] = self._combined(combined[row], value)
            else:
                windows = self._open.of(start)
                windows[key] = self._combined(windows.get(key), value)
        self._rows.put_many(updated)
        self._open.updates -= len(updated)

    def _fire_windows(self, limit: int, ahead: Mapping[int, int]) -> Iterator[Batch]:
        open_windows, outputs = self._open, Outputs(self._turn)
        before_end = self._span.size_ms - 1
        while (start := open_windows.earliest(limit - before_end)) is not None:
            yield from self._fire_rows(outputs, start + before_end)
            # A flush in one of the pauses makes rows of those that have not fired.
            while windows := open_windows.take(start, TIMERS_PER_STEP):
                self._values.check_new([value for _, value in windows])
                outputs.records += [
                    (decode_key(key[2:]), start, value)
                    for key, value in windows
                    if value is not None
                ]
                yield from outputs.step(TIMERS_PER_STEP)
            open_windows.windows.pop(start, None)
        yield from self._fire_rows(outputs, limit, ahead)
        yield from outputs.rest()

    def _fire_rows(
        self, outputs: Outputs, limit_ms: int, ahead: Mapping[int, int] = NONE_AHEAD
    ) -> Iterator[Batch]:
        timers = chain.from_iterable(self._timers.expired_rows(limit_ms, ahead))
        while chunk := list(islice(timers, min(_ROWS_AT_ONCE, TIMERS_PER_STEP))):
            outputs.records += self._take(chunk)
            yield from outputs.step(TIMERS_PER_STEP)

    def _take(self, timers: list[bytes]) -> list[tuple[Any, int, Any]]:
        """Remove these timers and the rows of their windows; returns the windows."""
        before_end = self._span.size_ms - 1
        starts = [decode_time(timer[TIME]) - before_end for timer in timers]
        keys = [timer[:2] + timer[KEY] for timer in timers]
        rows = list(map(self._open.row, keys, starts))
        values = self._rows.get_many(rows)
        self._rows.delete_many(rows)
        self._timers.delete_many(timers)
        passed = self._backend.event_time.watermark - before_end
        self._open.flushed.difference_update([start for start in starts if start <= passed])
        return [
            (decode_key(key[2:]), start, value)
            for key, start, value in zip(keys, starts, values, strict=True)
            # Without a row it was None at a flush.
            if value is not None
        ]


class _OpenWindows:
    """The windows of one subtask that no flush has seen."""

    def __init__(self, rows: StateRows, state: bytes, timers: Timers, size_ms: int) -> None:
        self._rows, self._state, self._timers, self._size_ms = rows, state, timers, size_ms
        self.windows: dict[int, dict[bytes, Any]] = {}
        """Their values by start, then key group and encoded key."""
        self.flushed: set[int] = set()
        """Starts of which windows may have rows."""
        self.count = 0
        """All windows; they are not counted anew, for their starts can be many."""
        self._starts: list[int] = []
        """A heap of the starts, and of some whose windows have all left memory."""
        self._size = RowSize()
        self._without_rows = range(0)
        """When rows were looked for last, no window that begins in these had one."""
        self.updates = 0
        """Values put here and windows fired since the last flush, each time counted."""

    def __len__(self) -> int:
        """The rows that a flush would make of them: one of each window and one of its timer."""
        return 2 * self.count

    @property
    def memory_bytes(self) -> int:
        return int(len(self) * self._size.bytes) // 2

    def of(self, start: int) -> dict[bytes, Any]:
        """The windows with this start; the caller may put values."""
        windows = self.windows.get(start)
        if windows is None:
            windows = self.windows[start] = {}
            if start not in self.flushed:  # else it was here before
                heappush(self._starts, start)
                if self._has_rows(start):
                    self.flushed.add(start)
        return windows

    def earliest(self, last: int) -> int | None:
        """The first start of windows that are here, if it is not after `last`."""
        while self._starts and self._starts[0] <= last:
            if self._starts[0] in self.windows:
                return self._starts[0]
            heappop(self._starts)
        return None

    def _has_rows(self, start: int) -> bool:
        if start in self._without_rows:
            return False
        before_end, without_rows = self._size_ms - 1, self._without_rows
        # Up to the next timer, which may be far: not every window looks for it anew.
        following = min(self._timers.next_times(start + before_end), default=_NEVER) - before_end
        end = following
        if start < without_rows.start <= following:
            end = max(following, without_rows.stop)
        self._without_rows = range(start, end)
        return following == start

    def updated(self, updates: int, key: bytes, value: Any) -> None:
        """Account for values that were put, of which this is one."""
        self.updates += updates
        self._size.sample(key, value)

    def row(self, key: bytes, start: int) -> bytes:
        return key[:2] + self._state + key[2:] + encode_time(start)

    def take(self, start: int, limit: int) -> list[tuple[bytes, Any]]:
        """Remove at most so many windows; returns them as key group with encoded key, and value."""
        windows = self.windows.get(start, {})
        removed = [windows.popitem() for _ in range(min(limit, len(windows)))]
        self.updates += len(removed)
        self.count -= len(removed)
        return removed

    def spill(self, limit: int) -> None:
        """Turn windows into rows and timers, at most so many rows: a flush takes them."""
        remaining = max(1, limit // 2)
        for start in list(islice(self.windows, remaining)):
            windows = self.take(start, remaining)
            if not self.windows[start]:
                del self.windows[start]  # its event time may come late, or never
            self.flushed.add(start)
            self._rows.put_many({self.row(key, start): value for key, value in windows})
            end = start + self._size_ms - 1
            self._timers.register_many(zip(repeat(end), [key for key, _ in windows], strict=False))
            # The rows count them from now on.
            self.updates -= 2 * len(windows)
            remaining -= len(windows)
            if not remaining:
                return
