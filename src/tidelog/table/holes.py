"""Holes in the files of a table: what RocksDB says of them, and the placeholders that have them.

A placeholder is a file of zeros that has the right size. RocksDB finds that a block of zeros has
not its checksum, and that a file without a footer is no table.

Invariant: what is written to a placeholder is what the file has there, and is never changed.
"""

import ctypes
import errno
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from tidelog.errors import CorruptObjectError, StoreFullError
from tidelog.table.failures import failures
from tidelog.table.sst_tail import FOOTER_BYTES

_BLOCK: Final = re.compile(
    r"^Corruption: block checksum mismatch: .*/(\d+\.sst) offset (\d+) size (\d+)"
)
_FOOTER: Final = re.compile(
    r"^Corruption: Bad table magic number: expected \d+, found 0 in .*/(\d+\.sst)"
)
_OF_BAD_BYTES: Final = ("corrupt", "checksum", "magic number")
"""Words of errors that may tell of a hole in another way."""
_TRAILER_BYTES: Final = 5
"""After each block: its compression and its checksum; the error's size is without them."""
_SPARE_SHARE: Final = 16
"""What the job itself writes needs room for one of so many bytes of the tables' files."""

_STAT_BLOCK_BYTES: Final = 512
"""The unit of `st_blocks`."""

_fallocate: Final = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)


class Hole(NamedTuple):
    """A part of a table's file that a read has missed."""

    file: str
    """Its name in the table."""
    offset: int | None
    """None: the end of the file, which says where its blocks are."""
    length: int


ANYWHERE: Final = Hole("", None, 0)
"""A hole of which RocksDB does not say in known words where it is: in any file of the table."""


class FilePart(NamedTuple):
    """Bytes of a file, and where they are."""

    offset: int
    data: bytes | memoryview


class Gaps(NamedTuple):
    """What stands between reads and their answers."""

    keys: list[bytes]
    """The keys that cannot be read yet."""
    ranges: list[tuple[bytes, bytes]]
    """The ranges of keys of which the first rows cannot be read yet."""
    holes: list[Hole]


class Holes(Protocol):
    """Where the missing parts of a table's files come from; called from any thread."""

    def fill(self, holes: Sequence[Hole], ahead: int) -> None:
        """Fetch and write these parts, each with at least `ahead` bytes from its beginning on.

        Blocks. Does nothing for a file that is whole. Raises what the store raises. All files are
        whole after it where one of the holes is `ANYWHERE`.
        """

    def damage(self, hole: Hole, problem: str) -> CorruptObjectError | None:
        """The error for a part that is bad although it was fetched; None: its file is whole."""


def hole_of(error: BaseException) -> Hole | None:
    """The hole that an error of RocksDB tells of; None: it tells of something else.

    The texts are those of the RocksDB that the tests pin; with other ones it may be anywhere.
    """
    text = str(error)
    if block := _BLOCK.match(text):
        return Hole(block[1], int(block[2]), int(block[3]) + _TRAILER_BYTES)
    if footer := _FOOTER.match(text):
        return Hole(footer[1], None, 0)
    lower = text.lower()
    return ANYWHERE if any(sign in lower for sign in _OF_BAD_BYTES) else None


def check_room(directory: Path, size: int, placeholders: Iterable[Path] = ()) -> None:
    """Raise StoreFullError when so many bytes of table files would not fit below a directory, where
    earlier placeholders may have yet to take their room; some of them may be gone.
    """
    free, spare = shutil.disk_usage(directory).free, size // _SPARE_SHARE
    for path in placeholders:
        with suppress(FileNotFoundError):
            status = path.stat()
            free -= max(0, status.st_size - status.st_blocks * _STAT_BLOCK_BYTES)
    if free < size + spare:
        raise StoreFullError(
            f"work directory {directory}",
            expected=f"{size} bytes for the files of the tables, and {spare} beside them",
            found=f"{max(0, free)} bytes free",
            action="free disk space or move the work directory, then restart the job",
        )


def make_placeholder(path: Path, size: int) -> None:
    """A file of this size; where the file system can do it, it has its room on the disk.

    So what arrives fits, whatever else fills the disk meanwhile. And a file system in memory ends
    the process (SIGBUS) that looks through a mapping at a hole for which it has no page.
    """
    with failures(path.parent), path.open("xb") as file:
        file.truncate(size)
        # Not Python's own call, which writes to each block where the file system cannot do it.
        if _fallocate is None or not size:
            return
        failed = _fallocate(file.fileno(), 0, ctypes.c_int64(0), ctypes.c_int64(size))
        if failed and (number := ctypes.get_errno()) == errno.ENOSPC:
            raise OSError(number, os.strerror(number), str(path))


def write_parts(path: Path, parts: Iterable[FilePart]) -> None:
    """Write parts of a placeholder, one after the other; what was there already stays the same, as
    files never change.
    """
    with failures(path.parent):
        file = os.open(path, os.O_WRONLY)
        try:
            for part in parts:
                written = 0
                while written < len(part.data):
                    left = memoryview(part.data)[written:]
                    written += os.pwrite(file, left, part.offset + written)
        finally:
            os.close(file)


def footer_last(offset: int, data: bytes) -> list[FilePart]:
    """The end of a file, as it is written: RocksDB opens a file only with a footer, and then reads
    what the footer names.
    """
    body, view = max(0, len(data) - FOOTER_BYTES), memoryview(data)
    return [FilePart(offset, view[:body]), FilePart(offset + body, view[body:])]
