"""Tumbling windows in memory: most of them open and fire between two flushes.

Invariants:
- a window that has a row is not here; a flush turns one that is here into a row and a timer;
- a window whose value is None has a timer and no row, and may come here again;
- nothing is looked up for windows of a start of which no row can be.
"""

from dataclasses import dataclass
from typing import Any

from tidelog.changelog.row_memory import RowSize
from tidelog.changelog.state_rows import StateRows
from tidelog.state.handles.timers import Timers, encode_time

_NEVER = 1 << 64
"""Later than any start."""


@dataclass(slots=True)
class WindowsOfStart:
    """The windows that begin at one time, by key group and encoded key."""

    flushed: bool
    """Some of them may have rows."""
    values: dict[bytes, Any]


class OpenWindows:
    """The windows of one operator and subtask that no flush has seen."""

    def __init__(self, rows: StateRows, state: bytes, timers: Timers, size_ms: int) -> None:
        self._rows = rows
        self._state = state
        self._timers = timers
        self._size_ms = size_ms
        self._starts: dict[int, WindowsOfStart] = {}
        self._size = RowSize()
        self._none_from = _NEVER
        """No window that began then or later had a row before it was here."""
        self.updates = 0
        """Values put here and windows fired since the last flush, each time counted."""

    def __len__(self) -> int:
        """The rows that a flush would make of them: one of each window and one of its timer."""
        return 2 * sum([len(windows.values) for windows in self._starts.values()])

    @property
    def memory_bytes(self) -> int:
        return int(len(self) * self._size.bytes) // 2

    def of(self, start: int) -> WindowsOfStart:
        """The windows with this start; the caller may put values."""
        windows = self._starts.get(start)
        if windows is None:
            windows = self._starts[start] = WindowsOfStart(self._has_rows(start), {})
        return windows

    def _has_rows(self, start: int) -> bool:
        if start >= self._none_from:
            return False
        end = start + self._size_ms - 1
        found = set(self._timers.next_times(end))
        if not found:
            self._none_from = start
        return end in found

    def has(self, start: int, key: bytes) -> bool:
        return start in self._starts and key in self._starts[start].values

    def updated(self, updates: int, key: bytes, value: Any) -> None:
        """Account for values that were put, of which this is one."""
        self.updates += updates
        self._size.sample(key, value)

    def row(self, key: bytes, start: int) -> bytes:
        return key[:2] + self._state + key[2:] + encode_time(start)

    def ended(self, time_ms: int) -> list[int]:
        """Starts of windows whose last time is `time_ms` or before, in order."""
        return sorted([start for start in self._starts if start + self._size_ms - 1 <= time_ms])

    def take(self, start: int, most: int) -> list[tuple[bytes, Any]]:
        """At most so many windows (key group and encoded key, value), which are gone from here."""
        values = self._starts[start].values
        pop = values.popitem
        taken = [pop() for _ in range(min(most, len(values)))]
        self.updates += len(taken)
        return taken

    def close(self, start: int) -> None:
        """No value of a window with this start follows; flushes have seen what is left."""
        del self._starts[start]

    def spill(self, most: int) -> None:
        """Turn windows into rows and timers, at most so many rows: a flush takes them."""
        left = max(1, most // 2)
        for start, windows in self._starts.items():
            values = windows.values
            if values and left > 0:
                keys = [values.popitem() for _ in range(min(left, len(values)))]
                windows.flushed = True
                self._rows.put_many({self.row(key, start): value for key, value in keys})
                end = start + self._size_ms - 1
                self._timers.register_many(end, [key for key, _ in keys])
                # The rows count them from now on.
                self.updates -= len(keys)
                left -= len(keys)
