"""An object store in this process's memory.

Invariant: no call waits between looking and writing, so every call is atomic within one event
loop and the store's order of events is the order of its calls.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncIterator
from typing import Final

from tidelog.storage.errors import check_content, object_exists, object_not_found
from tidelog.storage.object_names import check_name
from tidelog.storage.port import ObjectInfo, PlainStore


class MemoryStore(PlainStore):
    """Objects in a dict; they live as long as the store does, `close` keeps them."""

    def __init__(self, url: str = "memory://") -> None:
        self.url = url
        self._objects: dict[str, bytes] = {}
        self._names: list[str] = []

    async def put(self, name: str, data: bytes) -> None:
        self._store(check_name(name), data)

    async def create(self, name: str, data: bytes) -> None:
        check_content(name, data)
        if name in self._objects:
            raise object_exists(self.url, name)
        self._store(check_name(name), data)

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        return self._find(name)[start : None if length is None else start + length]

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        position = max(bisect_left(self._names, prefix), bisect_right(self._names, start_after))
        while position < len(self._names):
            name = self._names[position]
            if not name.startswith(prefix):
                return
            yield ObjectInfo(name, len(self._objects[name]))
            position = bisect_right(self._names, name)

    async def head(self, name: str) -> ObjectInfo:
        return ObjectInfo(name, len(self._find(name)))

    async def delete(self, name: str) -> None:
        if self._objects.pop(name, None) is not None:
            del self._names[bisect_left(self._names, name)]

    def _store(self, name: str, data: bytes) -> None:
        if name not in self._objects:
            insort(self._names, name)
        self._objects[name] = data

    def _find(self, name: str) -> bytes:
        try:
            return self._objects[name]
        except KeyError:
            raise object_not_found(self.url, name) from None


_shared: Final[dict[str, MemoryStore]] = {}


def shared_memory_store(name: str) -> MemoryStore:
    """The store of `memory://name`: every call in this process gets the same one."""
    return _shared.setdefault(name, MemoryStore(f"memory://{name}"))
