"""A file of a table of which some parts are here: what is fetched of it, checked and written.

Invariants: every part that is written is what the object has there, or RocksDB finds by its
checksums that it is not; a file counts as whole when all its bytes have passed the checks of its
object. All methods may run in several event loops together.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.checkpoint.descriptor import TableObject
from tidelog.errors import (
    OLDER_CHECKPOINT,
    CorruptObjectError,
    ObjectNotFoundError,
    RestoreError,
    StorageError,
)
from tidelog.storage.port import ObjectStore
from tidelog.table.holes import FilePart, footer_last, write_parts
from tidelog.table.sst_tail import tail_start

_TAIL_SHARE: Final = 40
"""One of so many bytes of a file is fetched as its tail at first; the rest, if there is, then."""
TAIL_MINIMUM: Final = 8 << 10


@dataclass(slots=True, eq=False)
class PartialFile:
    """A file of a table, of which some parts are here."""

    object: TableObject
    path: Path
    """A placeholder, which the directories of tables link to until it is whole."""
    has_tail: bool = False
    is_whole: bool = False

    async def read_tail(self, store: ObjectStore) -> None:
        """Fetch what RocksDB reads as it opens the file."""
        if self.has_tail:
            return
        size = self.object.size
        length = min(size, max(TAIL_MINIMUM, size // _TAIL_SHARE))
        data = await self.read(store, size - length, length)
        start = tail_start(data, size)
        if start is not None and start < size - length:
            data = await self.read(store, start, size - length - start) + data
        elif start is None:
            # Of a format that is not known here: then the whole of it is the tail.
            data = await self.read(store, 0, size)
        self.write(footer_last(size - len(data), data))
        self.has_tail = True

    async def content(self, store: ObjectStore) -> bytes:
        """All of it, not checked yet."""
        return await self.read(store, 0, self.object.size)

    def complete(self, data: bytes) -> None:
        """Check all of it and write it; raises CorruptObjectError."""
        self.object.check(data, OLDER_CHECKPOINT)
        self.write(footer_last(0, data))
        self.has_tail = self.is_whole = True

    def write(self, parts: Iterable[FilePart]) -> None:
        """Write parts that were fetched."""
        try:
            write_parts(self.path, parts)
        except StorageError:
            # Another thread may have completed the file meanwhile, whose placeholder goes then.
            if not self.is_whole:
                raise

    def check_length(self, offset: int, length: int, data: bytes) -> None:
        """Raise CorruptObjectError for a part that has another length."""
        if len(data) != length:
            raise self.damage(f"{len(data)} bytes from {offset} on", f"{length} bytes")

    async def read(self, store: ObjectStore, offset: int, length: int) -> bytes:
        """Fetch a part of it; raises CorruptObjectError, RestoreError."""
        name = self.object.object
        try:
            data = await store.get(name, offset, length)
        except ObjectNotFoundError as cause:
            raise RestoreError(
                f"object {name}",
                expected="a table file, as the checkpoint names it",
                found="no such object",
                action=f"{OLDER_CHECKPOINT}, and find out what else deletes objects under this URL",
            ) from cause
        self.check_length(offset, length, data)
        return data

    def damage(self, found: str, expected: str = "what was written") -> CorruptObjectError:
        return CorruptObjectError(
            f"object {self.object.object} is damaged",
            expected=expected,
            found=found,
            action=OLDER_CHECKPOINT,
        )
