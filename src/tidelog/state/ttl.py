"""Removal of expired state, a few rows at a time.

Invariants: reads never return expired values whether they were removed or not; a removal is a
logged change like any other; a sweep visits every row of the state once before it starts over.

What is stored although it has expired stays a small share of the rest at any write rate: every row
that is written may expire once, and when that time has come `ROWS_PER_EXPIRY` visits are due for
it. So in one round through the table no more rows expire than that part of the rows visited.
Rows that are written again before they expire cost fewer visits: the sweep learns from each round
how many of the rows that may have expired really had.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from tidelog.changelog.change import prefix_end
from tidelog.changelog.state_rows import StateRows
from tidelog.state.key_groups import KeyGroupRange
from tidelog.table.port import Table

ROWS_PER_EXPIRY = 8
"""Rows visited for each that has expired."""
ROWS_PER_SECOND = 1024
"""Rows visited besides: what expired before the restart, or was not counted, goes too."""
_MAX_DUE_S = 1.0
_PARTS = 64
"""Parts of the time to live in which writes are counted."""
_MIN_YIELD = 1 / 16
_MIN_VISITS = 1024
"""Visits after which a round says something about those that follow."""

Expired = Callable[[bytes, bytes], bool]
"""Whether a stored value has expired at a time, which is encoded as expiry times are."""


class WrittenRows(NamedTuple):
    """Rows of one time that may expire."""

    last_ms: int
    """When the last of them does."""
    rows: int


class TtlSweep:
    """Visits the rows of one state with TTL and removes the expired ones."""

    def __init__(
        self,
        table: Table,
        rows: StateRows,
        state: bytes,
        owned: KeyGroupRange,
        ttl_ms: int,
        expired: Expired,
    ) -> None:
        self._table = table
        self._rows = rows
        self.state = state
        """The state's id."""
        self._owned = owned
        self._ttl_ms = ttl_ms
        self._expired = expired
        self._group = int(owned.first)
        self._after = b""
        self._counted = 0
        """Rows of the write buffer that are in `_written`, or were deleted here."""
        self._written: list[WrittenRows] = []
        """As they expire."""
        self._due = 0.0
        self._new = 0.0
        """The part of `_due` that was added in this round."""
        self._paid_ms: int | None = None
        self._yield = 1.0
        """How many of the rows that may have expired really had, in the last round."""
        self._may_have = 0
        self._visited = 0
        self._removed = 0

    def count(self, now_ms: int) -> None:
        """Count what was written since the last call; to be called before every flush, too."""
        changed = len(self._rows)
        written = changed - self._counted if changed >= self._counted else changed
        self._counted = changed
        if written:
            part = max(1, self._ttl_ms // _PARTS)
            expires = (now_ms + self._ttl_ms) // part * part + part
            # Mostly at the end, but after a clock that was ahead for a moment.
            index = bisect_left(self._written, (expires, 0))
            if index < len(self._written) and self._written[index].last_ms == expires:
                written += self._written.pop(index).rows
            self._written.insert(index, WrittenRows(expires, written))

    def flushed(self) -> None:
        """Rows left the write buffer."""
        self._counted = len(self._rows)

    def rows_due(self, now_ms: int) -> int:
        self.count(now_ms)
        while self._written and self._written[0].last_ms <= now_ms:
            rows = self._written.pop(0).rows
            self._may_have += rows
            self._add_due(rows * ROWS_PER_EXPIRY * self._yield)
        since = 0 if self._paid_ms is None else now_ms - self._paid_ms
        self._paid_ms = now_ms
        self._add_due(min(max(since / 1000, 0.0), _MAX_DUE_S) * ROWS_PER_SECOND)
        return int(self._due)

    def _add_due(self, rows: float) -> None:
        self._due += rows
        self._new += rows

    def step(self, now_ms: int, limit: int) -> None:
        """Visit so many of the rows due at most, and remove those that have expired."""
        remaining = min(limit, int(self._due))
        if remaining <= 0:
            return
        for _ in range(self._owned.last - self._owned.first + 1):
            prefix = self._group.to_bytes(2, "big") + self.state
            scan = self._table.scan(max(prefix, self._after), prefix_end(prefix))
            visited = list(islice(scan, remaining))
            self._visited += len(visited)
            self.remove_expired(visited, now_ms)
            if self._visited >= _MIN_VISITS and self._removed * ROWS_PER_EXPIRY > self._visited:
                self._yield = 1.0
            self._due = max(0.0, self._due - len(visited))
            remaining -= len(visited)
            if remaining <= 0:
                if visited:
                    last, _ = visited[-1]
                    self._after = last + b"\x00"
                break
            self._next_group()
        else:
            # Everything was visited: what expired before now is gone.
            self._due = 0.0

    def remove_expired(self, rows: Iterable[tuple[bytes, bytes]], now_ms: int) -> None:
        """Remove those of these rows of the table that have expired."""
        now = now_ms.to_bytes(8, "big")
        for key, value in rows:
            # What the write buffer has is newer, and has not expired yet.
            if self._expired(value, now) and self._rows.changed(key) is None:
                self._rows.delete(key)
                self._counted += 1
                self._removed += 1

    def _next_group(self) -> None:
        self._after = b""
        if self._group < self._owned.last:
            self._group += 1
            return
        self._group = int(self._owned.first)
        if self._may_have:
            self._yield = min(1.0, max(_MIN_YIELD, self._removed / self._may_have))
        self._may_have = self._visited = self._removed = 0
        # All that had expired when the round began is gone.
        self._due, self._new = min(self._due, self._new), 0.0


def value_expired(value: bytes, now: bytes) -> bool:
    """Whether a stored value has expired: it begins with its expiry time."""
    return value[:8] <= now


def list_expired(value: bytes, now: bytes) -> bool:
    return all(element[:8] <= now for element in _elements(value))


_elements: Callable[[bytes], list[Any]] = msgspec.msgpack.Decoder(list[bytes]).decode
