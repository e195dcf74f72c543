"""A store on any file system that fsspec knows and that has no adapter of its own, to be read.

Invariants: `create` is refused, because the file system's is not known to have one winner; listings
are never answered from a cache.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs

from tidelog.effects import Effects
from tidelog.errors import ConfigError, ObjectNotFoundError
from tidelog.storage import errors
from tidelog.storage.object_names import check_name
from tidelog.storage.port import ObjectInfo, PlainStore


def open_fsspec_store(url: str, effects: Effects, options: Mapping[str, Any]) -> "FsspecStore":
    """The store at a URL of any scheme that fsspec knows; `options` go to the file system.

    Raises ConfigError when the scheme is unknown or its library is missing, and as the store's
    methods do where the file system asks its server at once.
    """
    try:
        filesystem, root = url_to_fs(url, **{"asynchronous": True, **options})
        if not filesystem.async_impl:
            filesystem, root = url_to_fs(url, **options)
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"store URL {url!r}",
            expected="a path, file://, memory://, s3://, gs://, az://, or what fsspec opens here",
            found=str(error),
            action="correct the scheme or install the library it needs",
        ) from error
    except OSError as error:
        raise errors.from_os_error(error, f"store {url}") from error
    reopen = partial(open_fsspec_store, url, options=options)
    return FsspecStore(url, filesystem, root, effects, reopen=reopen)


class FsspecStore(PlainStore):
    """Objects as files below `root` of an fsspec file system.

    Every method raises StoreUnreachableError, AccessDeniedError and StorageError; the writing ones
    StoreFullError. fsspec closes a file system's connections with its last user.
    """

    def __init__(
        self,
        url: str,
        filesystem: AbstractFileSystem,
        root: str,
        effects: Effects,
        *,
        reopen: "Callable[[Effects], FsspecStore] | None" = None,
    ) -> None:
        """`reopen` makes the same store for another event loop; None: this one is for any."""
        self.url = url
        self._filesystem = filesystem
        self._root = root.rstrip("/")
        self._effects = effects
        self._reopen = reopen

    def apart(self, effects: Effects) -> "FsspecStore":
        return self if self._reopen is None else self._reopen(effects)

    async def put(self, name: str, data: bytes) -> None:
        await self._write(name, data, mode="overwrite")

    async def create(self, name: str, data: bytes) -> None:
        """Raises ConditionalPutError."""
        actual = f"{type(self._filesystem).__name__}, whose create is not known to be atomic"
        raise errors.no_conditional_put(self.url, actual)

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        size = (await self.head(name)).size if start or length is not None else None
        if size is not None and (start >= size or length == 0):
            return b""  # file systems disagree on what an empty range is
        end = None if length is None else start + length
        data: bytes = await self._call(name, "cat_file", self._path(name), start, end)
        return data

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """Names in ascending order; the whole folder of `prefix` is read first."""
        folder = f"{self._root}/{prefix}".rpartition("/")[0]
        self._filesystem.invalidate_cache()
        try:
            files = await self._call(f"{prefix}*", "find", folder, detail=True)
        except ObjectNotFoundError:
            return
        for path in sorted(files):
            name = path[len(self._root) + 1 :]
            if name.startswith(prefix) and name > start_after:
                yield ObjectInfo(name, files[path]["size"])

    async def head(self, name: str) -> ObjectInfo:
        self._filesystem.invalidate_cache()
        info = await self._call(name, "info", self._path(name))
        if info["type"] != "file":
            raise errors.object_not_found(self.url, name)
        return ObjectInfo(name, info["size"])

    async def delete(self, name: str) -> None:
        with suppress(ObjectNotFoundError):
            await self._call(name, "rm_file", self._path(name))

    async def _write(self, name: str, data: bytes, mode: str) -> None:
        path = self._path(name)
        try:
            await self._call(name, "pipe_file", path, data, mode=mode)
        except ObjectNotFoundError:  # the file system has directories, and this one is missing
            await self._call(name, "makedirs", path.rpartition("/")[0], exist_ok=True)
            await self._call(name, "pipe_file", path, data, mode=mode)

    def _path(self, name: str) -> str:
        return f"{self._root}/{check_name(name)}"

    async def _call(self, name: str, method: str, *args: Any, **kwargs: Any) -> Any:
        what = errors.object_at(self.url, name)
        try:
            if self._filesystem.async_impl:
                return await getattr(self._filesystem, f"_{method}")(*args, **kwargs)
            function = getattr(self._filesystem, method)
            return await self._effects.offload.run(function, *args, **kwargs)
        except FileExistsError as error:
            raise errors.object_exists(self.url, name) from error
        except FileNotFoundError as error:
            raise errors.object_not_found(self.url, name) from error
        except OSError as error:
            raise errors.from_os_error(error, what) from error
        except Exception as error:
            raise errors.storage_failed(what, f"{type(error).__name__}: {error}") from error
