"""Translation of what the disk and RocksDB report into tidelog errors.

Invariant: a damaged file becomes CorruptObjectError and names that file, a full disk becomes
StoreFullError, a wrong directory ConfigError, use after close InvariantError; whatever else the
disk reports is a StorageError that carries the original text.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rocksdict import DbClosedError

from tidelog.errors import (
    AccessDeniedError,
    ConfigError,
    CorruptObjectError,
    InvariantError,
    StorageError,
    StoreFullError,
    TidelogError,
    too_many_files,
)

_FILE_IN_TEXT = re.compile(r"(\S+\.sst|\S*MANIFEST-\d+|\S*CURRENT)\b")
_DISK_FULL = ("no space left on device", "disk quota exceeded")
_DENIED = ("permission denied", "operation not permitted", "read-only file system")
_GONE = ("no such file or directory", "not a directory", "stale file handle")
_TOO_MANY_FILES = "too many open files"
_WRONG_DIRECTORY = ("directory exists", "error_if_exists", "file exists")


def corrupt(path: Path | str, expected: str, found: str) -> CorruptObjectError:
    """The error for a table file whose bytes are not what was written."""
    return CorruptObjectError(
        f"table file {path}",
        expected=expected,
        found=found,
        action="discard this local table and restore it from the last checkpoint",
    )


@contextmanager
def failures(directory: Path) -> Iterator[None]:
    """Within, what goes wrong with a table that lies under `directory` is raised as `translate`
    has it. Calls for single rows and keys do so themselves: a context costs as much as they do.
    """
    try:
        yield
    except TidelogError:
        raise
    except Exception as error:
        raise translate(error, directory) from error


def translate(error: Exception, directory: Path) -> TidelogError:
    """The tidelog error for what went wrong with a table that lies under `directory`."""
    text = " ".join(str(error).split())
    lower = text.lower()
    if any(sign in lower for sign in _DISK_FULL):
        return StoreFullError(
            f"table {directory}",
            expected="room on the local disk",
            found=text,
            action="free disk space or move the work directory, then restart the job",
        )
    if _TOO_MANY_FILES in lower:
        return too_many_files(f"table {directory}", text)
    if any(sign in lower for sign in _WRONG_DIRECTORY):
        return ConfigError(
            f"directory {directory}",
            expected="no files there yet",
            found=text,
            action="pass a fresh directory",
        )
    if lower.startswith("corruption"):
        file_match = _FILE_IN_TEXT.search(text)
        return corrupt(file_match.group(1) if file_match else directory, "intact contents", text)
    if isinstance(error, DbClosedError) or lower.startswith("invalid argument"):
        return InvariantError(
            f"table {directory}",
            expected="calls that keep the table port's rules",
            found=text,
            action="report this as a bug of tidelog",
        )
    return _of_disk(error, text, directory)


def _of_disk(error: Exception, text: str, directory: Path) -> StorageError:
    """The error of a disk that is not full, by what it says."""
    lower = text.lower()
    if any(sign in lower for sign in _DENIED):
        return AccessDeniedError(
            _named(error, directory),
            expected="a directory below the work directory that can be made and written to",
            found=text,
            action="check its owner and mode, and that its disk is not mounted read-only, or set "
            "another work directory (--work-dir); then restart the job",
        )
    if any(sign in lower for sign in _GONE):
        return StorageError(
            _named(error, directory),
            expected="the directories and files of the work directory, as the job made them",
            found=text,
            action="let nothing else remove or replace what is below the work directory, then "
            "restart the job",
        )
    return StorageError(
        f"table {directory}",
        expected="a local disk that reads and writes",
        found=f"{type(error).__name__}: {text}",
        action="check the disk of the work directory, then restart the job",
    )


def _named(error: Exception, directory: Path) -> str:
    """The very file or directory that the system refused, where it says which."""
    name = error.filename if isinstance(error, OSError) else None
    return f"table {directory}" + ("" if name in (None, str(directory)) else f": {name}")
