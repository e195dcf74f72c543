"""A table whose rows were looked at once, and whose fingerprint follows the changes to it.

Invariants: what `rows` and `changed` answer is what a scan of all rows would find, violations too;
where that cannot be told from the changed rows alone, or costs more than a scan, all are scanned.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.table.port import Table
from tidelog.verify.fingerprint import AT_ONCE
from tidelog.verify.job.rows import Row, RowScan

_SHARE: Final = 3
"""Reading one row by its key takes about as long as so many in a scan."""

Keys = Sequence[bytes]
Values = Sequence[bytes | None]


@dataclass(slots=True)
class ScannedTable:
    """An open table; `scan` has taken its rows if it is `known`."""

    table: Table
    scan: RowScan
    known: bool = False

    def rows(self) -> RowScan:
        """A scan of all rows of the table."""
        if not self.known:
            self.scan = self.scan.empty()
            for keys, values in self.table.columns(AT_ONCE):
                self.scan.take_columns(keys, values)
            self.known = True
        return self.scan.copy()

    def apply(self, keys: Keys, values: Values) -> None:
        """Write changes in the order of their keys; a value of None deletes."""
        if not keys:
            return
        self.known = self.known and _SHARE * len(keys) <= self.scan.total.rows
        if self.known:
            self._follow(self.scan, keys, values)
            # A violation may be one that was replaced.
            self.known = not self.scan.violations
        self.table.load(keys, values)

    def changed(self, keys: Keys, values: Values) -> RowScan:
        """A scan of the rows as they would be after changes, which are not written."""
        found = self.rows()
        self._follow(found, keys, values)
        if found.violations:
            found = found.empty()
            found.take(_merged(self.table.scan(b"", None), keys, values))
        return found

    def last(self, keys: Keys, values: Values) -> RowScan:
        """As `changed`, where nobody needs the table afterwards."""
        if self.known:
            return self.changed(keys, values)
        self.apply(keys, values)
        return self.rows()

    def _follow(self, scan: RowScan, keys: Keys, values: Values) -> None:
        for at in range(0, len(keys), AT_ONCE):
            part, news = keys[at : at + AT_ONCE], values[at : at + AT_ONCE]
            scan.remove(*_present(part, self.table.get_many(part)))
            scan.take_columns(*_present(part, news))


def _present(keys: Keys, values: Values) -> tuple[list[bytes], list[bytes]]:
    """The rows that have a value."""
    if None not in values:
        return list(keys), list(values)  # type: ignore[arg-type]
    rows = [(key, value) for key, value in zip(keys, values, strict=True) if value is not None]
    return [key for key, _ in rows], [value for _, value in rows]


def _merged(rows: Iterator[Row], keys: Keys, values: Values) -> Iterator[Row]:
    """Rows with changes to them, both in the order of keys."""
    changes = zip(keys, values, strict=True)
    key, value = next(changes, (None, None))
    for row in rows:
        while key is not None and key < row[0]:
            if value is not None:
                yield key, value
            key, value = next(changes, (None, None))
        if key != row[0]:
            yield row
    if key is not None and value is not None:
        yield key, value
    yield from ((key, value) for key, value in changes if value is not None)
