"""Reading one file in chunks of whole lines.

Invariants: a position is [offset, limit], the offset always at the start of a line, the limit
None for a file that is followed; bytes at or behind the limit are never read.
"""

import errno
import os
import stat
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidelog.errors import ConfigError, ObjectNotFoundError, StorageError
from tidelog.runtime.source import SplitReader
from tidelog.storage import errors

CHUNK_BYTES: Final = 64 << 10
MAX_LINE_BYTES: Final = 64 << 20

_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class LineLimits:
    """Sizes in bytes: of one read, and of the longest line accepted, without its newline."""

    chunk: int = CHUNK_BYTES
    line: int = MAX_LINE_BYTES

    def __post_init__(self) -> None:
        """Raises ConfigError for sizes out of range."""
        for what, size in (("chunk_bytes", self.chunk), ("max_line_bytes", self.line)):
            if size < 1:
                raise ConfigError(what, expected="at least 1", found=str(size), action="raise it")


class LineReader(SplitReader):
    """Reads one file in chunks of whole lines; subclasses turn them into records.

    Raises ConfigError for a line above the limit, ObjectNotFoundError for a file that is gone,
    StorageError for one that became shorter, was replaced or cannot be read.
    """

    position: tuple[int, int | None]
    delay_s = _POLL_S

    def __init__(self, path: Path, position: Any, limits: LineLimits, *, follow: bool) -> None:
        self._path = path
        self._longest = limits.line
        # One byte more than the longest line: a line that fits a chunk is then never too long.
        self._chunk = min(limits.chunk, limits.line + 1)
        self._file: int | None = None
        self._identity = self._open()
        offset, limit = position or (0, None)
        self.position = (
            offset,
            None if follow else self._identity.st_size if limit is None else limit,
        )

    @property
    def at_end(self) -> bool:  # type: ignore[override]  # computed here
        """All bytes up to the limit are read."""
        offset, limit = self.position
        return limit is not None and offset >= limit

    @abstractmethod
    def decode(self, data: bytes, offset: int) -> list[Any]:
        """The records in whole lines that stand at an offset of the file."""

    def read(self) -> list[Any] | None:
        """The records of the next chunk of lines."""
        if self.at_end:
            return None
        offset, limit = self.position
        data = self._lines(offset, limit)
        records = self.decode(data, offset) if data else []
        self.position = (offset + len(data), limit)
        if self.at_end:
            self.close()  # in the thread that reads: closing may wait, as all that storage does
        return records

    def pause(self) -> None:
        """A directory may have more files than a process may have open."""
        self.close()

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)

    def _open(self) -> os.stat_result:
        with failures(self._path):
            self._file = os.open(self._path, os.O_RDONLY)
            identity = os.fstat(self._file)
            if stat.S_ISDIR(identity.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(self._path))
        return identity

    def _lines(self, offset: int, limit: int | None) -> bytes:
        """Whole lines from the offset on; empty when a followed file has none yet."""
        size = self._chunk
        while True:
            data = self._read(offset, size if limit is None else min(size, limit - offset))
            whole = data.rfind(b"\n") + 1
            if not whole and len(data) > self._longest:
                raise self._too_long(offset)
            if offset + len(data) == limit:
                return data  # up to the last line, which may lack its newline
            if whole:
                return data[:whole]
            if len(data) < size:
                return b""
            size = min(2 * size, self._longest + 1)

    def _read(self, offset: int, size: int) -> bytes:
        if self._file is None:
            self._check_same(self._open())
        assert self._file is not None
        with failures(self._path):
            data = os.pread(self._file, size, offset)
            if len(data) < size:
                self._check_unchanged()
        return data

    def _check_unchanged(self) -> None:
        """At the end of the file: it must be the one that was opened, and not have shrunk."""
        offset, limit = self.position
        least = offset if limit is None else limit
        now = self._path.stat()
        self._check_same(now)
        if now.st_size < least:
            raise self._changed(f"at least {least} bytes", f"{now.st_size} bytes")

    def _check_same(self, now: os.stat_result) -> None:
        if not os.path.samestat(now, self._identity):
            raise self._changed("the file that was opened", "another one under its name")

    def _changed(self, expected: str, found: str) -> StorageError:
        return StorageError(
            f"input file {self._path}",
            expected=expected,
            found=found,
            action="put the whole file back; input may only grow while a job reads it",
            retry_safe=False,
        )

    def _too_long(self, offset: int) -> ConfigError:
        return ConfigError(
            f"input file {self._path}, line at byte {offset}",
            expected=f"a newline within {self._longest} bytes",
            found="none",
            action="raise max_line_bytes, or check that the file holds lines",
        )


@contextmanager
def failures(path: Path) -> Iterator[None]:
    """Turns what the system reports about a file into errors that name it."""
    try:
        yield
    except FileNotFoundError as error:
        raise ObjectNotFoundError(
            f"input file {path}",
            expected="the file that was discovered",
            found="nothing",
            action="put it back; input must stay until the job has read it",
        ) from error
    except OSError as error:
        raise errors.from_os_error(error, f"input file {path}") from error
