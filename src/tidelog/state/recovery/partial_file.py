"""A file of a table of which some parts are here: what is fetched of it, checked and written.

Invariants: every part that is written is what the object has there, or RocksDB finds by its
checksums that it is not; a file counts as whole when all its bytes have passed the checks of its
object. All methods may run in several event loops together.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.checkpoint.descriptor import TableObject
from tidelog.effects import Offload
from tidelog.errors import (
    OLDER_CHECKPOINT,
    CorruptObjectError,
    ObjectNotFoundError,
    RestoreError,
    StorageError,
)
from tidelog.storage.port import ObjectStore
from tidelog.table.failures import failures
from tidelog.table.holes import FilePart, footer_last, write_parts
from tidelog.table.sst_tail import tail_start

_TAIL_SHARE: Final = 1 / 40
"""What is fetched of a file as its tail, as long as nothing is known of others; ..."""
_MARGIN: Final = 1.06
"""... then so much of what they have needed. If that is too little the rest is fetched, too."""
TAIL_MINIMUM: Final = 8 << 10
RANGE_BYTES: Final = 2 << 20
"""What is fetched of a file at a time when all of it is: many arrive together, in memory."""


@dataclass(slots=True, eq=False)
class PartialFile:
    """A file of a table, of which some parts are here."""

    object: TableObject
    path: Path
    """A placeholder, which the directories of tables link to until it is whole."""
    tail_start: int | None = None
    """From where on it is here, once its tail is."""
    tail_bytes: int | None = None
    """How long its tail is, once it is here."""
    is_whole: bool = False

    def tail_guess(self, other: "PartialFile | None" = None) -> int:
        """Bytes that its tail will hardly exceed, given another file of the table."""
        size, share = self.object.size, _TAIL_SHARE
        if other is not None and other.tail_bytes is not None:
            share = other.tail_bytes / other.object.size * _MARGIN
        return min(size, max(TAIL_MINIMUM, int(size * share)))

    def write_tail(self, data: bytes) -> int:
        """Write what RocksDB reads as it opens the file, given the last bytes of it.

        0, or so many last bytes are needed.
        """
        size = self.object.size
        # Of a format that is not known here: then the whole of it is the tail.
        start = tail_start(data, size) or 0
        if start < size - len(data):
            return size - start
        self.write(footer_last(size - len(data), data))
        self.tail_start, self.tail_bytes = size - len(data), size - start
        return 0

    async def fetch_rest(
        self, store: ObjectStore, offload: Offload, arrived: Callable[[int], None]
    ) -> None:
        """Fetch all that lies in front of the tail, and tell how many bytes have come."""
        end = self.object.size if self.tail_start is None else self.tail_start
        arrived(self.object.size - end)
        for start in range(0, end, RANGE_BYTES):
            data = await self.read(store, start, min(RANGE_BYTES, end - start))
            await offload.run_to_end(self.write, footer_last(start, data))
            arrived(len(data))

    def complete(self) -> None:
        """Check all of it, as it was written; raises CorruptObjectError."""
        if self.is_whole:
            return
        with failures(self.path.parent):
            data = self.path.read_bytes()
        self.object.check(data, OLDER_CHECKPOINT)
        self.is_whole = True

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
