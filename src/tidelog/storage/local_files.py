"""The blocking file operations below the local store, and for others that write files.

Invariants: a write goes to a temp file of the same file system, is synced, and only then gets
its name by one atomic call; temp files carry the host and process that own them and are never
walked; directories are synced after the names in them changed. Functions raise OSError; their
callers know what to call the thing that failed.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG
from typing import Final

from tidelog.events import Event
from tidelog.storage.port import ObjectInfo

logger = logging.getLogger(__name__)

TEMP_DIRECTORY: Final = ".tidelog-tmp"

_PUBLISH_ATTEMPTS: Final = 3
_ABANDONED_S: Final = 86_400.0
"""A write takes seconds. One that was suspended for so long finds its file gone, and fails."""

Publish = Callable[[Path, Path], object]
"""Gives a finished temp file its name, atomically."""

_written: Final[set[Path]] = set()
"""The temp files that this process is writing."""


def make_directory(directory: Path, *, durable: bool = True) -> None:
    """Create a directory and what is missing above it; durable: also its name survives."""
    if directory.is_dir():
        return
    make_directory(directory.parent, durable=durable)
    directory.mkdir(exist_ok=True)
    if durable:
        sync_directory(directory.parent)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_running(pid: int) -> bool:
    """Whether a process of that number lives on this machine; unsure counts as yes."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


def remove_stale_temps(root: Path, host: str) -> None:
    """Remove, as far as possible, temp files `<host>-<pid>-<token>` of processes of this host that
    no longer run.

    One with our number that we do not write is of a process before us: in a container all have it.
    Whether owners on other hosts live is unknown, and a container is another host after each start:
    their files stay until others have been written for a day since.
    """
    directory = root / TEMP_DIRECTORY
    # By the clock of the file system alone, which all hosts share.
    last_write_s = directory.stat().st_mtime
    for temp in directory.iterdir():
        owner, _, pid = temp.name.rpartition("-")[0].rpartition("-")
        earlier = pid == str(os.getpid()) and temp not in _written
        dead = owner == host and pid.isdecimal() and (earlier or not is_running(int(pid)))
        try:
            if dead or temp.stat().st_mtime < last_write_s - _ABANDONED_S:
                temp.unlink(missing_ok=True)
        except FileNotFoundError:
            continue  # its owner has finished it
        except OSError as error:
            Event.FILE_NOT_DELETED.log(logger, path=temp, error=error)


def write(temp: Path, path: Path, data: bytes, publish: Publish, *, durable: bool) -> None:
    """Write `data` under the name `path`, all or nothing."""
    _written.add(temp)
    try:
        with temp.open("xb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        _publish(temp, path, publish, durable=durable)
    finally:
        temp.unlink(missing_ok=True)
        _written.discard(temp)
    if durable:
        with suppress(FileNotFoundError):  # the object was deleted again, its directory too
            sync_directory(path.parent)


def read(path: Path, start: int, size: int) -> bytes:
    """Up to `size` bytes from `start`, to the end when negative."""
    with path.open("rb") as file:
        file.seek(start)
        return file.read(size)


def read_part(path: Path, start: int, size: int) -> bytes:
    """As `read`, for a few bytes: without a buffer in between."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.pread(file, size, start)
    finally:
        os.close(file)


def size(path: Path) -> int:
    """Size of a regular file in bytes."""
    status = path.stat()
    if not S_ISREG(status.st_mode):
        raise FileNotFoundError(2, "not a file", str(path))
    return status.st_size


def delete(root: Path, path: Path) -> None:
    """Remove a file if it is there, then the directories below the top level it leaves empty."""
    try:
        path.unlink(missing_ok=True)
    except (IsADirectoryError, NotADirectoryError):
        return
    with suppress(OSError):
        for parent in path.parents:
            if root in (parent, parent.parent):
                return
            parent.rmdir()


def walk(root: Path, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
    """Objects in ascending order of their names; visits only directories that can hold one."""
    return _walk(root, prefix[: prefix.rfind("/") + 1], prefix, start_after)


def _walk(root: Path, folder: str, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
    for name in _entries(root, folder):
        if not name.startswith(prefix):
            continue
        if name.endswith("/"):
            # Every name below sorts with the folder unless start_after lies inside it.
            if name > start_after or start_after.startswith(name):
                yield from _walk(root, name, prefix, start_after)
        elif name > start_after:
            try:
                size_bytes = (root / name).stat().st_size
            except FileNotFoundError:
                continue  # deleted since the directory was read
            yield ObjectInfo(name, size_bytes)


def _entries(root: Path, folder: str) -> list[str]:
    """Names in one folder, sorted as the full names below them are: a folder ends in '/'."""
    try:
        with os.scandir(root / folder) as entries:
            return sorted(
                f"{folder}{entry.name}/" if entry.is_dir() else f"{folder}{entry.name}"
                for entry in entries
                if entry.name != TEMP_DIRECTORY
            )
    except (FileNotFoundError, NotADirectoryError):
        return []


def _publish(temp: Path, path: Path, publish: Publish, *, durable: bool) -> None:
    # A concurrent delete can remove the empty directory between making it and publishing.
    for _ in range(_PUBLISH_ATTEMPTS):
        with suppress(FileNotFoundError):
            publish(temp, path)
            return
        make_directory(path.parent, durable=durable)
    publish(temp, path)
