"""Where ordered rows begin and end: rows that were deleted there are not passed again.

A table marks a deleted row until it is compacted, and a scan passes all marks: of a queue or a
window, which grow at the end and lose rows at the front, each scan would pass all that ever was.
Invariant: all rows of a prefix are within what is remembered of it.
"""

from collections.abc import Iterator
from typing import Any, Final

from tidelog.changelog.change import prefix_end
from tidelog.changelog.state_rows import StateRows

_REMEMBERED: Final = 4096
"""Prefixes; of others the marks are passed once more."""


class FirstRows:
    """The bounds of prefixes that were scanned or cleared; a row is `put` here, or expected."""

    def __init__(self, rows: StateRows) -> None:
        self._rows = rows
        self._bounds: dict[bytes, tuple[bytes, bytes]] = {}
        """A prefix has no row before the first bound, and none at the second or after it."""

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, Any]]:
        """The rows of a prefix in their order, as they are when the scan starts."""
        first, end = self._bounds.get(prefix) or (prefix, prefix_end(prefix))
        if first >= end:
            return
        scan = self._rows.scan(first, end)
        row = next(scan, None)
        self._remember(prefix, end if row is None else row[0], end)
        if row is not None:
            yield row
            yield from scan

    def put(self, prefix: bytes, row: bytes, value: Any) -> None:
        self.expect(prefix, row)
        self._rows.put(row, value)

    def delete(self, row: bytes) -> None:
        self._rows.delete(row)

    def clear(self, prefix: bytes) -> None:
        for row, _ in list(self.scan(prefix)):
            self._rows.delete(row)
        self._remember(prefix, prefix_end(prefix), prefix)

    def expect(self, prefix: bytes, row: bytes, after: bytes | None = None) -> None:
        """Widen the bounds of a prefix for a row that is put, or for several before `after`."""
        if bounds := self._bounds.get(prefix):
            first, end = bounds
            if row < first or row >= end or after is not None:
                end = max(end, row + b"\0" if after is None else after)
                self._bounds[prefix] = min(first, row), end

    def _remember(self, prefix: bytes, first: bytes, end: bytes) -> None:
        if len(self._bounds) >= _REMEMBERED:
            self._bounds.clear()
        self._bounds[prefix] = first, end
