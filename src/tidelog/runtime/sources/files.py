"""Which files there are to read by lines.

Invariant: a split is a file's path below the root, in an order that does not depend on when or
where it is listed.
"""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from tidelog.errors import ConfigError
from tidelog.runtime.source import Source
from tidelog.runtime.sources.lines import LineLimits, failures
from tidelog.storage import errors

_REDISCOVER_S: Final = 1.0


class LineFiles(Source):
    """The regular files at a path, read by lines; subclasses say what a line becomes."""

    blocking = True

    def __init__(self, path: Path | str, include: str, limits: LineLimits, *, follow: bool) -> None:
        self._path = Path(path).absolute()
        self._include = include
        self._limits = limits
        self._follow = follow
        self.rediscover_s = _REDISCOVER_S if follow else None
        self.splits_grow = follow

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
        for folder, folders, names in os.walk(self._path, onerror=_unlisted):
            folders[:] = filter(_is_visible, folders)
            for name in filter(_is_visible, names):
                path = Path(folder, name)
                split = PurePosixPath(path.relative_to(self._path))
                if split.match(self._include) and path.is_file():
                    yield str(split)


def _unlisted(error: OSError) -> None:
    """What to do about a directory that cannot be listed; raises StorageError."""
    if not isinstance(error, FileNotFoundError):  # gone since its parent was listed
        raise errors.from_os_error(error, f"input directory {error.filename}") from error


def _is_visible(name: str) -> bool:
    """Hidden files are unfinished output by convention, that of the file sink too."""
    return not name.startswith(".")


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
