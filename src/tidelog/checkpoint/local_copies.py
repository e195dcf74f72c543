"""Copies of stored objects on a local disk: the blocking file operations.

Invariants: a copy is handed out only when every byte is what was stored: a table file must have the
hash in its object's name, a segment must end with a seal, a checksum over its name and its bytes;
the copies of an encrypted store are encrypted instead, which tells damage too.
Only these two kinds are copied; a name never stands for other content, so a copy cannot be stale.
Nothing is synced: what a crash cuts short does not pass the check.
"""

import shutil
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

import google_crc32c

from tidelog.checkpoint.table_file import content_hash, named_hash
from tidelog.storage import object_names
from tidelog.storage.local_files import walk

_SEAL: Final = struct.Struct("<QI4s")
SEAL_BYTES: Final = _SEAL.size
"""What the copy of a segment has besides the segment."""
_SEAL_MAGIC: Final = b"TLLC"
_TEMP: Final = "unfinished"


def copied(name: str) -> bool:
    """Whether objects of this name are copied at all."""
    segment = name.startswith(object_names.SEGMENTS)
    # A name of neither kind may be one that leads out of the directory of copies.
    return object_names.generation_of(name) is not None and (
        segment or named_hash(name) is not None
    )


def scan(directory: Path) -> dict[str, int]:
    """The copies in a directory and their bytes; what crashes left unfinished is removed."""
    shutil.rmtree(directory / _TEMP, ignore_errors=True)
    (directory / _TEMP).mkdir(parents=True)
    names = {info.name: info.size for info in walk(directory, "", "")}
    return {name: size for name, size in names.items() if copied(name)}


def write(directory: Path, name: str, data: bytes, token: str) -> int:
    """Keep an object's bytes; returns those on disk."""
    stored = data if named_hash(name) is not None else data + _seal(name, data)
    return write_as_it_is(directory, name, stored, token)


def write_as_it_is(directory: Path, name: str, stored: bytes, token: str) -> int:
    """Keep bytes that tell damage themselves, as encrypted ones do; returns how many."""
    temp = directory / _TEMP / token
    try:
        temp.write_bytes(stored)
        _publish(temp, directory / name)
    finally:
        temp.unlink(missing_ok=True)
    return len(stored)


def link(directory: Path, name: str, path: Path, token: str) -> int:
    """Keep a table file that will never change: a second name for it, or else a copy of it.

    Returns its bytes.
    """
    temp = directory / _TEMP / token
    try:
        try:
            temp.hardlink_to(path)
        except OSError:  # another file system, or one without links
            shutil.copyfile(path, temp)
        _publish(temp, directory / name)
    finally:
        temp.unlink(missing_ok=True)
    return path.stat().st_size


def read(directory: Path, name: str) -> bytes | None:
    """The whole object; None when there is no copy of it. Raises ValueError when it is damaged."""
    stored = read_as_it_is(directory, name)
    if stored is None:
        return None
    expected = named_hash(name)
    if expected is not None:
        if content_hash(stored) != expected:
            raise ValueError("content of another hash than its name says")
        return stored
    body, seal = stored[: -_SEAL.size], stored[-_SEAL.size :]
    if seal != _seal(name, body):
        raise ValueError("no seal that fits its name and content")
    return body


def read_as_it_is(directory: Path, name: str) -> bytes | None:
    """The bytes of a whole copy, unchecked; None when there is none."""
    try:
        return (directory / name).read_bytes()
    except FileNotFoundError:
        return None


def read_range(directory: Path, name: str, start: int, length: int) -> bytes | None:
    """A part of a segment whose seal was checked before; None when it is gone."""
    try:
        with (directory / name).open("rb") as file:
            file.seek(start)
            return file.read(length)
    except FileNotFoundError:
        return None


def remove(directory: Path, name: str) -> None:
    """Remove a copy if it is there."""
    path = directory / name
    path.unlink(missing_ok=True)
    with suppress(OSError):
        if path.parent.parent != directory:
            path.parent.rmdir()


def _publish(temp: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temp.replace(path)


def _seal(name: str, data: bytes) -> bytes:
    crc = google_crc32c.extend(google_crc32c.value(name.encode()), data)
    return _SEAL.pack(len(data), crc, _SEAL_MAGIC)
