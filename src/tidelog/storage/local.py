"""An object store in a local directory: one file per object.

Invariants: a file under an object's name is complete and synced before the name appears; all
disk I/O runs in the off-load; only errors of `tidelog.errors` leave.
"""

import errno
import platform
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from itertools import islice
from os import W_OK, access, getpid
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import unquote, urlsplit

from tidelog.effects import Effects
from tidelog.errors import ConfigError, StorageError
from tidelog.storage import errors, local_files
from tidelog.storage.object_names import check_name
from tidelog.storage.port import ObjectInfo, ObjectPart, PlainStore

T = TypeVar("T")

_LIST_PAGE: Final = 1000
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR})
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


def local_directory(url: str) -> Path | None:
    """Where a store of this URL has its objects, if that is on this machine."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def remove_empty_directories(url: str, *names: str) -> None:
    """Remove what a store that nothing uses any more has left in a local directory: directories of
    these names, and that of unfinished writes. A directory with something in it stays.
    """
    directory = local_directory(url)
    if directory is None:
        return
    for name in (*names, local_files.TEMP_DIRECTORY):
        with suppress(OSError):
            (directory / name).rmdir()


class LocalStore(PlainStore):
    """Objects as files under `directory`, which is created on the first write.

    `durable=False` leaves out every fsync: objects then survive a crash of the process, not of
    the machine. All methods also raise AccessDeniedError and StorageError; the writing ones
    StoreFullError.
    """

    def __init__(self, directory: Path | str, effects: Effects, *, durable: bool = True) -> None:
        root = Path(directory).absolute()
        # One place has one URL, which holds when the directory that `..` leaves is gone.
        self._root = root.resolve() if ".." in root.parts else root
        self._effects = effects
        self._durable = durable
        self._prepared = False
        self.url = self._root.as_uri()

    def apart(self, effects: Effects) -> "LocalStore":
        return LocalStore(self._root, effects, durable=self._durable)

    async def put(self, name: str, data: bytes) -> None:
        await self._run(name, self._write, name, data, Path.replace)

    async def create(self, name: str, data: bytes) -> None:
        """Also raises ConditionalPutError, where the file system knows no hard links."""
        errors.check_content(name, data)
        await self._run(name, self._write, name, data, self._link)

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        size = -1 if length is None else length
        return await self._read(name, local_files.read, start, size)

    async def get_parts(
        self, parts: Sequence[ObjectPart], patience_s: float | None = None
    ) -> Sequence[bytes | None]:
        """All of them in one thread, however long it takes."""
        try:
            return await self._effects.offload.run(self._read_parts, parts)
        except OSError as error:
            if error.errno not in _ABSENT:
                raise self._translated(error, parts[0].name) from error
        return await super().get_parts(parts, patience_s)  # which says what is absent

    def _read_parts(self, parts: Sequence[ObjectPart]) -> Sequence[bytes]:
        return [local_files.read_part(self._path(name), start, size) for name, start, size in parts]

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        folder = prefix.rpartition("/")[0]
        if folder:
            check_name(folder)
        walk = local_files.walk(self._root, prefix, start_after)
        while page := await self._run(prefix, list[ObjectInfo], islice(walk, _LIST_PAGE)):
            for info in page:
                yield info

    async def head(self, name: str) -> ObjectInfo:
        return ObjectInfo(name, await self._read(name, local_files.size))

    async def delete(self, name: str) -> None:
        """Remove `name` if it is there, and the directories below the top level it leaves empty.

        Not synced: an object that a crash brings back is garbage that `tidelog gc` removes.
        """
        await self._run(name, local_files.delete, self._root, self._path(name))

    def _write(self, name: str, data: bytes, publish: local_files.Publish) -> None:
        path, temps = self._path(name), self._root / local_files.TEMP_DIRECTORY
        author = f"{platform.node()}-{getpid()}"
        if not self._prepared:
            local_files.make_directory(temps, durable=self._durable)
            local_files.remove_stale_temps(self._root, platform.node())
            self._prepared = True
        temp = temps / f"{author}-{self._effects.token()}"
        local_files.write(temp, path, data, publish, durable=self._durable)

    def _link(self, temp: Path, path: Path) -> None:
        try:
            path.hardlink_to(temp)
        except FileExistsError:  # for all racing callers but one
            raise errors.object_exists(self.url, path.relative_to(self._root).as_posix()) from None
        except OSError as error:
            # A directory that is immutable refuses links, and everything else, by the same number.
            if error.errno in _NO_LINKS and access(path.parent, W_OK):
                actual = f"a file system without hard links ({error.strerror})"
                raise errors.no_conditional_put(self.url, actual) from error
            raise

    async def _read(self, name: str, function: Callable[..., T], *args: int) -> T:
        try:
            return await self._effects.offload.run(function, self._path(name), *args)
        except OSError as error:
            if error.errno in _ABSENT:
                raise errors.object_not_found(self.url, name) from None
            raise self._translated(error, name) from error

    async def _run(self, name: str, function: Callable[..., T], *args: object) -> T:
        try:
            return await self._effects.offload.run(function, *args)
        except OSError as error:
            raise self._translated(error, name) from error

    def _translated(self, error: OSError, name: str) -> StorageError:
        if error.errno == errno.ENOENT:  # what is read and absent has an error of its own
            return StorageError(
                errors.object_at(self.url, name),
                expected="the directories that this process has found or made",
                found=f"{error.strerror}: {error.filename}",
                action="bring the store back, or mount its disk again, before the job starts "
                "again: where no store is, it begins anew",
                retry_safe=False,
            )
        return errors.from_os_error(error, errors.object_at(self.url, name))

    def _path(self, name: str) -> Path:
        check_name(name)
        if local_files.TEMP_DIRECTORY in name.split("/"):
            raise ConfigError(
                f"object name {name!r}",
                expected=f"a name outside {local_files.TEMP_DIRECTORY!r}",
                action="choose another name; this directory holds unfinished writes",
            )
        return self._root / name
