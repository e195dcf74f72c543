"""Which files there are to read.

Invariant: a split is a file's path below the root, in an order that does not depend on when or
where it is listed.
"""

import os
import re
from collections.abc import Callable, Iterator
from fnmatch import translate
from pathlib import Path, PurePosixPath
from typing import Final

from tidelog.connectors.files.input_file import failures
from tidelog.connectors.files.line_reader import LineLimits
from tidelog.errors import ConfigError
from tidelog.runtime.source import Source
from tidelog.storage import errors

_REDISCOVER_S: Final = 1.0


class InputFiles(Source):
    """The regular files at a path; subclasses read them."""

    blocking = True
    prompt = True

    def __init__(self, path: Path | str, include: str, *, follow: bool) -> None:
        self._path = Path(path).absolute()
        self._includes = _matcher(include)
        self._follow = follow
        self.rediscover_s = _REDISCOVER_S if follow else None

    def discover(self) -> list[str]:
        """Paths below the root, sorted; raises ConfigError and StorageError."""
        with failures(self._path):
            if self._path.is_file():
                return [_storable(self._path.name)]
            if self._path.is_dir():
                return sorted(map(_storable, self._walk()))
            raise ConfigError(
                f"input {self._path}",
                expected="a file or a directory",
                found="something else" if self._path.exists() else "nothing",
                action="create it or pass another path",
            )

    def _locate(self, split: str) -> Path:
        is_root = split == self._path.name and not self._path.is_dir()
        return self._path if is_root else self._path / split

    def _walk(self) -> Iterator[str]:
        folders = [""]
        while folders:
            folder = folders.pop()
            for entry in _entries(self._path / folder):
                if entry.name.startswith("."):
                    continue  # by convention output that is not finished, as the file sink's
                split = folder + entry.name
                if entry.is_dir(follow_symlinks=False):
                    folders.append(split + "/")
                elif self._includes(split) and _is_file(entry):
                    yield split


class LineFiles(InputFiles):
    """Files that are read by lines; subclasses say what a line becomes."""

    def __init__(self, path: Path | str, include: str, limits: LineLimits, *, follow: bool) -> None:
        super().__init__(path, include, follow=follow)
        self._limits = limits
        self.splits_grow = follow


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a directory; raises StorageError when it cannot be listed."""
    try:
        with os.scandir(folder) as found:
            return list(found)
    except FileNotFoundError:
        return []  # gone since its parent was listed
    except OSError as error:
        raise errors.from_os_error(error, f"input directory {folder}") from error


def _is_file(entry: os.DirEntry[str]) -> bool:
    # Only a link costs a look at the file system; one that leads nowhere is no file.
    return Path(entry.path).is_file() if entry.is_symlink() else entry.is_file()


def _matcher(include: str) -> Callable[[str], bool]:
    """What `PurePosixPath.match` answers for the pattern, compiled once for many paths."""
    pattern = PurePosixPath(include)
    if not pattern.parts:
        raise ConfigError(
            "include", expected="a glob pattern", found=repr(include), action="pass one, such as *"
        )
    if pattern.is_absolute():
        return lambda _: False
    # Whole components from the right, as none of them matches across a slash.
    parts = [re.compile(translate(part)).match for part in reversed(pattern.parts)]

    def matches(split: str) -> bool:
        names = split.rsplit("/", len(parts))[::-1]
        return len(names) >= len(parts) and all(
            matched(name) for matched, name in zip(parts, names, strict=False)
        )

    return matches


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
