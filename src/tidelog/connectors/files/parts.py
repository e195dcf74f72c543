"""The hidden files of the file sink, which hold what no checkpoint has committed.

Invariants: hidden names carry the generation and the subtask that own them, and beside them the
newest start that writes is recorded; a part that a checkpoint names is synced, and so is its name.
"""

import logging
import os
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import google_crc32c
import msgspec

from tidelog.connectors.transactions import Writer, fenced
from tidelog.errors import ConfigError, CorruptObjectError, ObjectNotFoundError, TidelogError
from tidelog.events import Event
from tidelog.runtime.sink import SinkContext
from tidelog.storage import errors
from tidelog.storage.document import FileName
from tidelog.storage.local_files import make_directory

logger = logging.getLogger(__name__)

STAGING: Final = ".tidelog"
SUFFIX: Final = ".inprogress"

_WRITER: Final = ".writer"

BUFFER_BYTES: Final = 1 << 20
PENDING: Final = re.compile(r"(?P<generation>\d+)-(?P<attempt>.*)-(?P<subtask>\d+)-\d+\.inprogress")
FINAL: Final = re.compile(r"part-\d+-(?P<checkpoint>\d+)-.*")
GROWING: Final = re.compile(
    r"_(?P<target>part-(?P<subtask>\d+)-.*)\.(?P<generation>\d+)\.inprogress"
)


class Part(msgspec.Struct, frozen=True, array_like=True):
    """A pre-committed file: hidden and final name in the directory, size in bytes, CRC32C.

    Its bytes go to this offset of a growing file, which gets the name `target` when it is
    complete; under its own name only where the growing one was completed without it.
    """

    pending: FileName
    final: FileName
    size: int
    crc32c: int
    target: FileName
    generation: int
    """The start that the growing file belongs to."""
    offset: int

    @property
    def growing(self) -> str:
        """The name of the file that it is appended to."""
        return growing_name(self.target, self.generation)

    @property
    def end(self) -> int:
        return self.offset + self.size


def take_over(directory: Path, context: SinkContext) -> Writer | None:
    """Record who writes to a directory; raises FencedError, and returns, as `check_newest`."""
    path, me = directory / STAGING / _WRITER, Writer.of(context)
    before = check_newest(directory, context)
    if before != me:
        draft = path.with_name(f"{_WRITER}-{me}-{context.subtask}")
        with failures(path):
            make_directory(path.parent)
            draft.write_bytes(msgspec.json.encode(me))
            draft.replace(path)
    return before


def check_newest(directory: Path, context: SinkContext) -> Writer | None:
    """Who writes to a directory, as recorded; raises FencedError when that is a newer start."""
    path, me = directory / STAGING / _WRITER, Writer.of(context)
    try:
        with failures(path), suppress(FileNotFoundError):
            newest = msgspec.json.decode(path.read_bytes(), type=Writer)
            if not newest.gives_way(me):
                raise fenced(context.name, me, newest, str(path), "remove that file")
            return newest
    except msgspec.DecodeError:
        pass  # a crash of the machine has cut it short
    return None


class OpenPart:
    """A hidden file that is being written; raises StorageError when the disk refuses."""

    def __init__(self, directory: Path, pending: str) -> None:
        self.size = 0
        self.takes_more = True
        """Nobody has tried to make it durable yet."""
        self.doubtful = False
        """A sync failed: the system may have dropped what it held, and would not say so again."""
        self._durable = False
        self._directory = directory
        self._pending = pending
        self._path = directory / STAGING / pending
        self._crc = 0
        with failures(self._path):
            make_directory(self._path.parent)
            self._file = self._path.open("xb", buffering=BUFFER_BYTES)

    def write(self, data: bytes) -> None:
        with failures(self._path):
            self._file.write(data)
        self._crc = google_crc32c.extend(self._crc, data)
        self.size += len(data)

    def seal(self) -> None:
        """Make the file durable under its hidden name; may be called again after a failure."""
        if self._durable:
            return
        self.takes_more = False
        with failures(self._path):
            # A failed flush keeps what it could not write, so it is simply done again.
            self._file.flush()
            try:
                os.fsync(self._file.fileno())
            except OSError:
                self.doubtful = True
                raise
            finally:
                self._close()
        self._durable = True

    def check_there(self) -> None:
        """Raises ObjectNotFoundError when somebody has removed it: no checkpoint may name it."""
        with failures(self._path):
            if self._path.exists():
                return
        raise ObjectNotFoundError(
            f"output file {self._path}",
            expected="what was written to it since the last checkpoint",
            found="nothing",
            action="start the job again, which writes it again; remove nothing here while a job "
            "runs, and give every job and every sink an output directory of its own",
        )

    def named(self, final: str, target: str, generation: int, offset: int) -> Part:
        return Part(self._pending, final, self.size, self._crc, target, generation, offset)

    def copied(self, pending: str) -> "OpenPart":
        """A copy in a new file; raises CorruptObjectError when the old file has other bytes."""
        copy = OpenPart(self._directory, pending)
        try:
            with failures(self._path), self._path.open("rb") as file:
                while data := file.read(BUFFER_BYTES):
                    copy.write(data)
            if (copy.size, copy._crc) != (self.size, self._crc):
                raise _other_bytes(self._path, self.size, self._crc, copy.size, copy._crc)
        except BaseException:
            copy.try_discard()
            raise
        return copy

    def discard(self) -> None:
        self._close()
        with failures(self._path):
            self._path.unlink(missing_ok=True)

    def try_discard(self) -> None:
        """Remove the file if that is possible; otherwise the next start removes it."""
        try:
            self.discard()
        except TidelogError as error:
            Event.FILE_NOT_DELETED.log(logger, path=self._path, error=error)

    def _close(self) -> None:
        with suppress(OSError):  # what is still buffered need not fit the disk any more
            self._file.close()


def growing_name(target: str, generation: int) -> str:
    """The name of a file in view that is not complete yet."""
    return f"_{target}.{generation}{SUFFIX}"


def pending_name(generation: int, attempt: str, subtask: int, number: int) -> str:
    """The hidden name of a part: whose it is can be read from it."""
    return f"{generation}-{attempt}-{subtask}-{number}{SUFFIX}"


def remove_pending(
    directory: Path, chosen: Callable[[int, int], bool], referenced: Collection[str]
) -> None:
    """Remove the hidden files whose generation and subtask are chosen, but none referenced."""
    staging = directory / STAGING
    with failures(staging):
        for path in staging.glob(f"*{SUFFIX}"):
            owner = PENDING.fullmatch(path.name)
            if owner is None or path.name in referenced:
                continue
            if chosen(int(owner["generation"]), int(owner["subtask"])):
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


def check_part(path: Path, part: Part, *, verify: bool) -> None:
    """Raises FileNotFoundError and CorruptObjectError."""
    size = path.stat().st_size
    crc32c = _checksum(path) if verify and size == part.size else part.crc32c
    if (size, crc32c) != (part.size, part.crc32c):
        raise _other_bytes(path, part.size, part.crc32c, size, crc32c)


def _other_bytes(
    path: Path, size: int, crc32c: int, found_size: int, found_crc32c: int
) -> CorruptObjectError:
    return damaged(
        path,
        f"{size} bytes with CRC32C {crc32c:08x}",
        f"{found_size} bytes" + (f" with {found_crc32c:08x}" if size == found_size else ""),
    )


def damaged(path: Path, expected: str, found: str) -> CorruptObjectError:
    return CorruptObjectError(
        f"output file {path}",
        expected=expected,
        found=found,
        action="bring back the file that was written here",
        retry_safe=False,
    )


def _checksum(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while data := file.read(BUFFER_BYTES):
            crc = google_crc32c.extend(crc, data)
    return crc


@contextmanager
def failures(path: Path) -> Iterator[None]:
    """Turns what the system reports about a file into StorageErrors that name it."""
    try:
        yield
    except OSError as error:
        raise errors.from_os_error(error, f"output file {path}") from error
