"""Copies of stored objects on a local disk: the blocking file operations.

Invariants: a copy is handed out only when every byte is what was stored: a table file must have the
hash in its object's name, a segment must end with a seal, a checksum over its name and its bytes;
the copies of an encrypted store are encrypted instead, which tells damage too.
Only these two kinds are copied; a name never stands for other content, so a copy cannot be stale.
Nothing is synced: what a crash cuts short does not pass the check.
"""

import shutil
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import google_crc32c

from tidelog.metrics import counter, gauge
from tidelog.storage import object_names
from tidelog.storage.document import content_hash
from tidelog.storage.local_files import walk
from tidelog.storage.object_names import content_hash_of

_SEAL: Final = struct.Struct("<QI4s")
SEAL_BYTES: Final = _SEAL.size
"""What the copy of a segment has besides the segment."""
_SEAL_MAGIC: Final = b"TLLC"
_TEMP: Final = "unfinished"


@dataclass(slots=True)
class LocalCopiesStatus:
    """Figures of the copies since the start; their number and size are those of the moment."""

    objects: int = gauge(
        "local_copies_objects",
        "Stored objects with a copy on the local disk.",
        watch="0 after a start on a new machine: the first restore reads the store.",
    )
    bytes: int = gauge(
        "local_copies_bytes",
        "Disk that the local copies take.",
        watch="Compare it with the limit (`local_recovery_bytes`).",
    )
    used: int = counter(
        "local_copies_used",
        "Reads of log segments and table files that a local copy answered.",
        watch="Reads that cost no request.",
    )
    used_bytes: int = counter(
        "local_copies_used_bytes",
        "Bytes of reads that a local copy answered.",
        watch="Traffic that was saved.",
    )
    fetched: int = counter(
        "local_copies_fetched",
        "Reads of log segments and table files that went to the store.",
        watch="Many, and few `local_copies_used`: local recovery does not help here.",
    )
    fetched_bytes: int = counter(
        "local_copies_fetched_bytes",
        "Bytes of log segments and table files that were read from the store.",
        watch="Traffic that was not saved.",
    )
    kept: int = counter(
        "local_copies_kept",
        "Copies of stored objects made on the local disk.",
        watch="That local recovery is at work.",
    )
    damaged: int = counter(
        "local_copies_damaged",
        "Local copies that did not pass their check; the store was read instead.",
        watch="Any growth: look at the disk.",
    )
    refused: int = counter(
        "local_copies_refused",
        "Local copies not made, because the limit is reached or the disk refused.",
        watch="Growth: raise the limit, or free disk.",
    )
    last_problem: str | None = None


def copied(name: str) -> bool:
    """Whether objects of this name are copied at all."""
    segment = name.startswith(object_names.SEGMENTS)
    # A name of neither kind may be one that leads out of the directory of copies.
    return object_names.generation_of(name) is not None and (
        segment or content_hash_of(name) is not None
    )


def remove_unfinished(directory: Path) -> None:
    """Make the directory ready; what crashes left unfinished is removed."""
    shutil.rmtree(directory / _TEMP, ignore_errors=True)
    # An older job that has not noticed yet that it is fenced may have written again meanwhile.
    (directory / _TEMP).mkdir(parents=True, exist_ok=True)


def scan(directory: Path) -> dict[str, int]:
    """The copies in a directory and their bytes."""
    return {info.name: info.size for info in walk(directory, "", "") if copied(info.name)}


def write(directory: Path, name: str, data: bytes, token: str) -> int:
    """Keep an object's bytes; returns those on disk."""
    content = data if content_hash_of(name) is not None else data + _seal(name, data)
    return write_as_it_is(directory, name, content, token)


def write_as_it_is(directory: Path, name: str, content: bytes, token: str) -> int:
    """Keep bytes that tell damage themselves, as encrypted ones do; returns how many."""
    with _published(directory, name, token) as temp:
        temp.write_bytes(content)
    return len(content)


def link(directory: Path, name: str, path: Path, token: str) -> int:
    """Keep a table file, which never changes: by a second name or a copy. Returns its bytes."""
    with _published(directory, name, token) as temp:
        try:
            temp.hardlink_to(path)
        except OSError:  # another file system, or one without links
            shutil.copyfile(path, temp)
    return path.stat().st_size


def gone(directory: Path, names: Iterable[str]) -> list[str]:
    """The ones of these objects that have no copy any more."""
    return [name for name in names if not (directory / name).exists()]


def read(directory: Path, name: str) -> bytes | None:
    """The whole object; None when there is no copy of it. Raises ValueError when it is damaged."""
    content = read_as_it_is(directory, name)
    if content is None:
        return None
    expected = content_hash_of(name)
    if expected is not None:
        if content_hash(content) != expected:
            raise ValueError("content of another hash than its name says")
        return content
    body, seal = content[: -_SEAL.size], content[-_SEAL.size :]
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
    path = directory / name
    path.unlink(missing_ok=True)
    with suppress(OSError):
        if path.parent.parent != directory:
            path.parent.rmdir()


@contextmanager
def _published(directory: Path, name: str, token: str) -> Iterator[Path]:
    """A file for the block to write, which is the copy of `name` from then on."""
    temp, path = directory / _TEMP / token, directory / name
    try:
        yield temp
        path.parent.mkdir(parents=True, exist_ok=True)
        temp.replace(path)
    finally:
        temp.unlink(missing_ok=True)


def _seal(name: str, data: bytes) -> bytes:
    crc = google_crc32c.extend(google_crc32c.value(name.encode()), data)
    return _SEAL.pack(len(data), crc, _SEAL_MAGIC)
