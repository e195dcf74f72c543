"""The files below the file sink: written hidden, then renamed into view.

Invariants: a file under its final name is complete and synced, and no file there is ever
replaced; hidden names carry the subtask that owns them; directories are synced after the names
in them changed.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import google_crc32c
import msgspec

from tidelog.errors import ConfigError, CorruptObjectError, ObjectNotFoundError
from tidelog.storage import raising
from tidelog.storage.disk import make_directory

STAGING: Final = ".tidelog"
SUFFIX: Final = ".inprogress"

_BUFFER_BYTES: Final = 1 << 20


class Part(msgspec.Struct, frozen=True, array_like=True):
    """A pre-committed file: hidden and final name in the directory, size in bytes, CRC32C."""

    pending: str
    final: str
    size: int
    crc32c: int


class OpenPart:
    """A hidden file that is being written; raises StorageError when the disk refuses."""

    def __init__(self, directory: Path, pending: str) -> None:
        self.size = 0
        self._directory = directory
        self._pending = pending
        self._path = directory / STAGING / pending
        self._crc = 0
        with failures(self._path):
            make_directory(self._path.parent)
            self._file = self._path.open("xb", buffering=_BUFFER_BYTES)

    def write(self, data: bytes) -> None:
        """Append."""
        with failures(self._path):
            self._file.write(data)
        self._crc = google_crc32c.extend(self._crc, data)
        self.size += len(data)

    def seal(self, final: str) -> Part:
        """Make the file durable under its hidden name."""
        with failures(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        return Part(self._pending, final, self.size, self._crc)

    def discard(self) -> None:
        """Remove the file."""
        with failures(self._path):
            self._path.unlink(missing_ok=True)
        with suppress(OSError):  # what is still buffered need not fit the disk any more
            self._file.close()


def publish(directory: Path, part: Part, *, verify: bool) -> None:
    """Rename a part to its final name; success also when that was done before.

    `verify` reads the hidden file and compares its checksum: after a crash. Raises
    ObjectNotFoundError when the part is nowhere, CorruptObjectError when it is not what was
    written, ConfigError when another file has its name. The caller syncs the directory.
    """
    pending, final = directory / STAGING / part.pending, directory / part.final
    with failures(final):
        if not final.exists():
            # A predecessor that still runs may rename it at any moment: look at the result.
            with suppress(FileNotFoundError):
                _check(pending, part, verify=verify)
                pending.rename(final)
        elif pending.exists():
            raise taken(final)
        try:
            _check(final, part, verify=False)
        except FileNotFoundError:
            raise _lost(pending, final) from None


def remove_pending(directory: Path, chosen: Callable[[int], bool]) -> None:
    """Remove the hidden files of the subtasks that are chosen, whoever wrote them."""
    staging = directory / STAGING
    with failures(staging):
        for path in staging.glob(f"*{SUFFIX}"):
            subtask = "".join(path.name.split("-")[-2:-1])
            if subtask.isdecimal() and chosen(int(subtask)):
                path.unlink(missing_ok=True)


def taken(final: Path) -> ConfigError:
    """The error for a final name that somebody else's file has."""
    return ConfigError(
        f"output file {final}",
        expected="a free name",
        found="a file that this job did not write",
        action="give every job and every sink an output directory of its own, and move this away",
        retry_safe=False,
    )


def _lost(pending: Path, final: Path) -> ObjectNotFoundError:
    return ObjectNotFoundError(
        f"output file {final}",
        expected=f"it, or its pre-committed data in {pending}",
        found="neither",
        action="bring one of them back: its records are in no other file",
        retry_safe=False,
    )


def _check(path: Path, part: Part, *, verify: bool) -> None:
    """Raises FileNotFoundError and CorruptObjectError."""
    size = path.stat().st_size
    crc32c = _checksum(path) if verify and size == part.size else part.crc32c
    if (size, crc32c) != (part.size, part.crc32c):
        raise CorruptObjectError(
            f"output file {path}",
            expected=f"{part.size} bytes with CRC32C {part.crc32c:08x}",
            found=f"{size} bytes" + (f" with {crc32c:08x}" if size == part.size else ""),
            action="bring back the file that was written here",
            retry_safe=False,
        )


def _checksum(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while data := file.read(_BUFFER_BYTES):
            crc = google_crc32c.extend(crc, data)
    return crc


@contextmanager
def failures(path: Path) -> Iterator[None]:
    """Turns what the system reports about a file into StorageErrors that name it."""
    try:
        yield
    except OSError as error:
        raise raising.from_os_error(error, f"output file {path}") from error
