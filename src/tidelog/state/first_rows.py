"""Where ordered rows begin: rows that were deleted at their front are not passed again.

A table marks a deleted row until it is compacted, and a scan passes all marks: of a queue or a
window, which grow at the end and lose rows at the front, each scan would pass all that ever was.
Invariant: what is remembered of a prefix never comes after its first row.
"""

from collections.abc import Iterator
from typing import Any, Final

from tidelog.changelog.change import prefix_end
from tidelog.changelog.state_rows import StateRows

_REMEMBERED: Final = 4096
"""Prefixes; of others the marks are passed once more."""


class FirstRows:
    """The first row of prefixes that were scanned; who puts a row says so."""

    def __init__(self, rows: StateRows) -> None:
        self._rows = rows
        self._first: dict[bytes, bytes] = {}

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, Any]]:
        """The rows of a prefix in their order, as they are when the scan starts."""
        end = prefix_end(prefix)
        scan = self._rows.scan(self._first.get(prefix, prefix), end)
        row = next(scan, None)
        if len(self._first) >= _REMEMBERED:
            self._first.clear()
        self._first[prefix] = end if row is None else row[0]
        if row is not None:
            yield row
            yield from scan

    def put(self, prefix: bytes, row: bytes, value: Any) -> None:
        """Put a row of a prefix."""
        first = self._first.get(prefix)
        if first is not None and row < first:
            self._first[prefix] = row
        self._rows.put(row, value)
