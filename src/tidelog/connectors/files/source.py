"""Which files there are to read, and one of them.

Invariants: a split is a file's path below the root, in an order that does not depend on when or
where it is listed; a file stays the one that was opened first; what the system reports about it
becomes an error that names it.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import translate
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

import google_crc32c

from tidelog.connectors.arguments import local_path
from tidelog.errors import (
    ConfigError,
    ObjectNotFoundError,
    RestoreError,
    StorageError,
    UnavailableError,
    require,
)
from tidelog.runtime.source import Source
from tidelog.storage import errors

MARKED_BYTES: Final = 1024
"""Bytes at a text's start, and before a position in it, that are compared with earlier ones."""
_REDISCOVER_S: Final = 1.0


class SilentFile(NamedTuple):
    """A followed file that had nothing new, as it was then."""

    device: int
    inode: int
    size: int
    wake: Callable[[], object]
    """To be called, by any thread, when the file is not so any more."""

    def is_same(self, now: os.stat_result) -> bool:
        return (now.st_dev, now.st_ino, now.st_size) == self[:3]


class InputFiles(Source):
    """The regular files at a path; subclasses read them."""

    blocking = True
    reads_without_waiting = True

    def __init__(self, path: Path | str, include: str, *, follow: bool) -> None:
        self.root = local_path("path of the input", path, "--input")
        """The file, or the directory of the files."""
        self.include = include
        """The pattern of the files that are read."""
        self._includes = _matcher(include)
        self.follow = follow
        self.has_end = not follow
        self.rediscover_s = _REDISCOVER_S if follow else None
        self._silent: dict[str, SilentFile] = {}

    def wake_when_changed(self, split: str, silent: SilentFile) -> None:
        """A reader of this file need not look: each discovery does, and costs less."""
        self._silent[split] = silent

    def close(self) -> None:
        self._silent.clear()

    def discover(self) -> list[str]:
        """Paths below the root, sorted; raises ConfigError and StorageError."""
        silent = tuple(self._silent)
        splits = self._found()
        for split in set(silent).difference(splits):
            self._compare(split, None)
        return splits

    def _found(self) -> list[str]:
        with failures(self.root):
            if self.root.is_file():
                self._compare(self.root.name, self.root.stat())
                return [_storable(self.root.name)]
            if self.root.is_dir():
                splits = list(map(_storable, self._walk(self._includes)))
                if not (splits or self.follow) and any(self._walk(lambda _: True)):
                    raise UnavailableError(
                        f"input {self.root}",
                        expected=f"files that match the pattern {self.include!r}",
                        found="other files only",
                        action="correct include=",
                    )
                return sorted(splits)
            raise UnavailableError(
                f"input {self.root}",
                expected="a file or a directory",
                found="something else" if self.root.exists() else "nothing",
                action="create it or pass another path",
            )

    def would_read(self, file: Path) -> bool:
        return self.split_of(file) is not None

    def split_of(self, file: Path) -> str | None:
        """The name of the split that a file is; None: it is not read."""
        # Linked directories are not read: it counts where the file's directory really is.
        file, root = Path(os.path.realpath(file.parent), file.name), os.path.realpath(self.root)
        if not file.is_relative_to(root):
            return None
        split = file.relative_to(root)
        if file == Path(root):
            return file.name
        is_read = not any(map(_is_left_out, split.parts)) and self._includes(split.as_posix())
        return split.as_posix() if is_read else None

    def _compare(self, split: str, now: os.stat_result | None) -> None:
        """Wake the reader of a silent file that is not as it was; None: it is gone."""
        silent = self._silent.get(split)
        if silent is not None and (now is None or not silent.is_same(now)):
            self._silent.pop(split, None)
            silent.wake()

    def locate(self, split: str) -> Path:
        is_root = split == self.root.name and not self.root.is_dir()
        return self.root if is_root else self.root / split

    def _walk(self, includes: Callable[[str], bool]) -> Iterator[str]:
        """The files that a pattern includes."""
        folders = [""]
        while folders:
            folder = folders.pop()
            for entry in _entries(self.root / folder):
                if _is_left_out(entry.name):
                    continue
                split = folder + entry.name
                if entry.is_dir(follow_symlinks=False):
                    folders.append(split + "/")
                elif includes(split) and _is_file(entry):
                    if split in self._silent:
                        self._compare(split, _stat_of(entry))
                    yield split


def _is_left_out(name: str) -> bool:
    """Whether a name is by convention that of something unfinished: of our sink, Spark, Hadoop."""
    return name.startswith((".", "_part-")) or name == "_temporary"


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a directory; raises StorageError when it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []  # gone since its parent was listed
    except OSError as error:
        raise errors.from_os_error(error, f"input directory {folder}") from error


def _is_file(entry: os.DirEntry[str]) -> bool:
    # Only a link costs a look at the file system; one that leads nowhere is no file.
    return Path(entry.path).is_file() if entry.is_symlink() else entry.is_file()


def _stat_of(entry: os.DirEntry[str]) -> os.stat_result | None:
    """What the system says of it, None for one that is gone since it was listed."""
    try:
        return entry.stat()
    except OSError:
        return None


def _matcher(include: str) -> Callable[[str], bool]:
    """What `PurePosixPath.match` answers for the pattern, fast for one without a directory."""
    # Patterns match at any depth as they are.
    pattern = include.removeprefix("**/")
    usable = bool(PurePosixPath(pattern).parts) and "**" not in pattern and pattern[0] != "/"
    require("include", repr(include), usable, "a pattern such as *, *.jsonl or 2026/*.jsonl")
    if "/" in pattern:
        return lambda split: PurePosixPath(split).match(pattern)
    matches = re.compile(translate(pattern)).match
    return lambda split: matches(split.rpartition("/")[2]) is not None


def _storable(split: str) -> str:
    """The name itself; raises ConfigError for one that no checkpoint could hold."""
    try:
        split.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"input file {split!r}",
            expected="a name in UTF-8",
            found=f"byte {os.fsencode(split[error.start])!r}",
            action="rename it",
        ) from None
    return split


def check_position(path: Path, *, fits: bool) -> None:
    """Raises RestoreError for a position that another kind of source has stored."""
    if not fits:
        raise RestoreError(
            f"input file {path}",
            expected="a position in it of this kind of source",
            found="that of another kind that had the source's name before",
            action="go back to that kind; or give this source another name= and drop the positions "
            "of the other with --allow-non-restored-state: all files are read again",
        )


def has_other_size(path: Path, size: int | None) -> bool:
    """Whether a file that was read to its end has another size than it had then (None: that is not
    known). False for one that is gone: it was read.
    """
    with suppress(FileNotFoundError):
        return path.stat().st_size != size
    return False


def mark_of(beginning: bytes, before: bytes = b"") -> list[int]:
    """Length and CRC32C of the first bytes of a text, and of those before a position in it. The
    position has them, so that a restart tells a text that was written anew from one that has grown.
    """
    mark: list[int] = []
    for text in (beginning[:MARKED_BYTES], before[-MARKED_BYTES:]):
        mark += len(text), int(google_crc32c.value(text))
    return mark


def is_marked(beginning: bytes, before: bytes, mark: Sequence[int]) -> bool:
    """Whether a text that begins so, and has these bytes before a position, is the one that was
    marked.
    """
    return mark_of(beginning[: mark[0]], before[len(before) - mark[2] :]) == list(mark)


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

    def open_bytes(self) -> int | None:
        """Bytes of the file that is open; None when it is not, or the system does not say."""
        with suppress(OSError):
            return None if self._file is None else os.fstat(self._file).st_size
        return None

    def size_now(self) -> int:
        """Bytes under the file's name, which must still be this file's."""
        with failures(self.path):
            now = self.path.stat()
        self.check_same(now)
        return now.st_size

    def mark(self, upto: int) -> list[int]:
        """The mark of the file's own bytes, at an offset in them."""
        start = max(0, upto - MARKED_BYTES)
        return mark_of(self.read(0, min(upto, MARKED_BYTES)), self.read(start, upto - start))

    def check_same(self, now: os.stat_result) -> None:
        """Raises StorageError when another file has the name."""
        if not os.path.samestat(now, self.identity):
            raise self.changed("the file that was opened", "another one under its name")

    def changed(self, expected: str, found: str) -> StorageError:
        return StorageError(
            f"input file {self.path}",
            expected=expected,
            found=found,
            action="put the whole file back; input may only grow while a job reads it",
            retry_safe=False,
        )

    def written_anew(self) -> StorageError:
        return self.changed("the text that was read", "another one: it was written anew")

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
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ObjectNotFoundError(
            f"input file {path}",
            expected="the file that was discovered",
            found="nothing",
            action="put it back, or its path in the job: input must stay until the job has read "
            "it; to read something else from now on, give the source another name and drop the "
            "positions of this one with --allow-non-restored-state",
        ) from error
    except OSError as error:
        raise errors.from_os_error(error, f"input file {path}") from error
