"""The state of a Spark state store as its changelogs make it, and its fingerprint all along.

Invariant: the fingerprint is that of the rows in the table after every changelog, without reading
the table again.
"""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.spark.format.changelog import Record, RecordKind
from tidelog.table.port import Table
from tidelog.verify.fingerprint import Fingerprint, row_hash

_BATCH: Final = 10_000


class MergesError(Exception):
    """A record appends to a value in a way that only Spark's merge operator knows."""


@dataclass(slots=True)
class ChangingTable:
    """A table under `directory`, and the fingerprint of its rows."""

    table: Table
    directory: Path
    fingerprint: Fingerprint

    def close(self) -> None:
        """Close it and remove its files."""
        self.table.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def apply(self, records: Iterable[Record]) -> None:
        """Apply a changelog; raises MergesError, behind which the table is of no use."""
        newest: dict[bytes, bytes | None] = {}
        for record in records:
            match record.kind:
                case RecordKind.MERGE:
                    raise MergesError
                case RecordKind.DELETE_RANGE:
                    self._write(newest)
                    rows = self.table.scan(record.key, record.value or b"")
                    newest = dict.fromkeys(key for key, _ in rows)
                case _:
                    newest[record.key] = record.value
            if len(newest) >= _BATCH:
                self._write(newest)
                newest = {}
        self._write(newest)

    def _write(self, newest: dict[bytes, bytes | None]) -> None:
        if not newest:
            return
        keys = sorted(newest)
        values = [newest[key] for key in keys]
        rows = total = 0
        for key, old, new in zip(keys, self.table.get_many(keys), values, strict=True):
            if old is not None:
                rows -= 1
                total -= row_hash(key, old)
            if new is not None:
                rows += 1
                total += row_hash(key, new)
        self.fingerprint += Fingerprint(rows, total)
        self.table.write(keys, values)
