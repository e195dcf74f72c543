"""Removal of expired state, a few rows at a time.

Invariants: reads never return expired values whether they were removed or not; a removal is a
logged change like any other; a sweep visits every row of the state once before it starts over.
"""

from collections.abc import Callable
from itertools import islice
from typing import Any

from tidelog.changelog.change import prefix_end
from tidelog.changelog.write_buffer import StateRows
from tidelog.state.key_groups import KeyGroupRange
from tidelog.table.port import Table

SWEEP_ROWS = 1024
"""Rows looked at per step: a step takes about a millisecond."""


class TtlSweep:
    """Visits the rows of one state with TTL and removes the expired ones."""

    def __init__(
        self,
        table: Table,
        rows: StateRows,
        state: bytes,
        owned: KeyGroupRange,
        expired: Callable[[Any, int], bool],
    ) -> None:
        self._table = table
        self._rows = rows
        self._state = state
        self._owned = owned
        self._expired = expired
        self._group = int(owned.first)
        self._after = b""

    def step(self, now_ms: int) -> int:
        """Look at the next rows; returns how many were removed."""
        removed = 0
        left = SWEEP_ROWS
        for _ in range(self._owned.last - self._owned.first + 1):
            prefix = self._group.to_bytes(2, "big") + self._state
            scan = self._table.scan(max(prefix, self._after), prefix_end(prefix))
            seen = [key for key, _ in islice(scan, left)]
            # The table's value may be older than the buffer's: only the newest one counts.
            for key in seen:
                held = self._rows.get(key)
                if held is not None and self._expired(held, now_ms):
                    self._rows.delete(key)
                    removed += 1
            left -= len(seen)
            if left <= 0:
                self._after = seen[-1] + b"\x00"
                break
            self._after = b""
            self._group = self._group + 1 if self._group < self._owned.last else self._owned.first
        return removed


def value_expired(held: Any, now_ms: int) -> bool:
    """Whether a held value of a state with TTL has expired."""
    return bool(held[0] <= now_ms)


def list_expired(held: Any, now_ms: int) -> bool:
    """Whether all elements of a list row have expired."""
    return all(element[0] <= now_ms for element in held)
