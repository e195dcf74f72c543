"""A store below another one: part of its names, over its connections.

Invariant: the store below sees the objects whose names begin with its path and no others, exactly
as a store that was opened at its URL.
"""

from collections.abc import AsyncIterator
from typing import Final

from tidelog.storage.metrics import RequestMetrics
from tidelog.storage.object_names import check_name
from tidelog.storage.port import Cipher, ObjectInfo, ObjectStore


class StoreBelow:
    """The objects of `whole` below a path, under their names without it."""

    cipher: Final[Cipher | None] = None

    def __init__(self, whole: ObjectStore, path: str) -> None:
        check_name(path)
        self.url = f"{whole.url.rstrip('/')}/{path}"
        self._whole = whole
        self._path = f"{path}/"

    @property
    def request_metrics(self) -> RequestMetrics | None:
        """The metrics of all requests to the underlying store."""
        return self._whole.request_metrics

    async def put(self, name: str, data: bytes) -> None:
        await self._whole.put(self._path + name, data)

    async def create(self, name: str, data: bytes) -> None:
        await self._whole.create(self._path + name, data)

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        return await self._whole.get(self._path + name, start, length)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        after = self._path + start_after if start_after else ""
        async for info in self._whole.list(self._path + prefix, after):
            yield ObjectInfo(info.name.removeprefix(self._path), info.size)

    async def head(self, name: str) -> ObjectInfo:
        return ObjectInfo(name, (await self._whole.head(self._path + name)).size)

    async def delete(self, name: str) -> None:
        await self._whole.delete(self._path + name)

    async def close(self) -> None:
        """The connections are those of the whole store, which stays open."""
