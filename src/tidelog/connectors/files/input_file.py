"""Files of the input: opened when they are read, closed between two reads when that is asked.

Invariants: a file stays the one that was opened first; what the system reports about it becomes
an error that names it.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidelog.errors import ObjectNotFoundError, StorageError
from tidelog.storage import errors


class InputFile:
    """One file; raises ObjectNotFoundError when it is gone, StorageError when it was replaced."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self.identity = self._open()

    def read(self, offset: int, size: int) -> bytes:
        """The bytes at an offset; fewer only at the end of the file as it is now."""
        if self._file is None:
            self.check_same(self._open())
        assert self._file is not None
        with failures(self.path):
            return os.pread(self._file, size, offset)

    def size_now(self) -> int:
        """Bytes under the file's name, which must still be this file's."""
        with failures(self.path):
            now = self.path.stat()
        self.check_same(now)
        return now.st_size

    def check_same(self, now: os.stat_result) -> None:
        """Raises StorageError when another file has the name."""
        if not os.path.samestat(now, self.identity):
            raise self.changed("the file that was opened", "another one under its name")

    def changed(self, expected: str, found: str) -> StorageError:
        """The error of a file that is not what it was."""
        return StorageError(
            f"input file {self.path}",
            expected=expected,
            found=found,
            action="put the whole file back; input may only grow while a job reads it",
            retry_safe=False,
        )

    def close(self) -> None:
        """Close it; the next `read` opens it again."""
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)

    def _open(self) -> os.stat_result:
        with failures(self.path):
            self._file = os.open(self.path, os.O_RDONLY)
            identity = os.fstat(self._file)
            if stat.S_ISDIR(identity.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(self.path))
        return identity


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
