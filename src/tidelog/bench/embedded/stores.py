"""Stores of the benchmarks: a local or in-memory one, behind the model of a network, stalled.

Invariant: whatever a run asks of its store is counted in one `ModelledStore`.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from tidelog.bench.store.manners import NONE, Manners
from tidelog.bench.store.modelled import ModelledStore, Write
from tidelog.effects import Effects, loop_thread
from tidelog.storage.local import LocalStore
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectInfo, ObjectStore

T = TypeVar("T")


class ThreadedStore:
    """Any store on an event loop of its own, as a network library has one.

    On the job's loop each chunk of a modelled transfer would wait for a turn of the job, which
    says something about the model and nothing about a network.
    """

    def __init__(self, inner: ObjectStore) -> None:
        self.url = inner.url
        self._inner = inner
        self._loop = loop_thread()

    async def put(self, name: str, data: bytes) -> None:
        """Write or overwrite."""
        await self._there(self._inner.put(name, data))

    async def create(self, name: str, data: bytes) -> None:
        """Write if absent."""
        await self._there(self._inner.create(name, data))

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Read a range."""
        return await self._there(self._inner.get(name, start, length))

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """List names."""
        for info in await self._there(_collected(self._inner.list(prefix, start_after))):
            yield info

    async def head(self, name: str) -> ObjectInfo:
        """Size of a name."""
        return await self._there(self._inner.head(name))

    async def delete(self, name: str) -> None:
        """Remove a name."""
        await self._there(self._inner.delete(name))

    async def close(self) -> None:
        """Close the inner store and end the loop."""
        await self._there(self._inner.close())
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _there(self, call: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))


async def _collected(infos: AsyncIterator[ObjectInfo]) -> list[ObjectInfo]:
    return [info async for info in infos]


class ObservedStore:
    """The store of a run: stalled while nothing may pass; `model` counts what passes."""

    def __init__(self, inner: ObjectStore, model: ModelledStore) -> None:
        self.url = inner.url
        self.model = model
        self._inner = inner
        self._open = asyncio.Event()
        self._open.set()

    @property
    def writes(self) -> list[Write]:
        """All that have succeeded, with their times."""
        return self.model.writes

    def stall(self) -> None:
        """Let every later call hang."""
        self._open.clear()

    def release(self) -> None:
        """Let all calls go on."""
        self._open.set()

    async def put(self, name: str, data: bytes) -> None:
        """Write or overwrite."""
        await self._open.wait()
        await self._inner.put(name, data)

    async def create(self, name: str, data: bytes) -> None:
        """Write if absent."""
        await self._open.wait()
        await self._inner.create(name, data)

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Read a range."""
        await self._open.wait()
        return await self._inner.get(name, start, length)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """List names."""
        await self._open.wait()
        async for info in self._inner.list(prefix, start_after):
            yield info

    async def head(self, name: str) -> ObjectInfo:
        """Size of a name."""
        await self._open.wait()
        return await self._inner.head(name)

    async def delete(self, name: str) -> None:
        """Remove a name."""
        await self._open.wait()
        await self._inner.delete(name)

    async def close(self) -> None:
        """Close the inner store."""
        await self._inner.close()


def open_local(directory: Path | None, effects: Effects) -> ObjectStore:
    """A store under `directory` (None: in memory)."""
    return MemoryStore() if directory is None else LocalStore(str(directory), effects)


def behind(store: ObjectStore, manners: Manners | None, effects: Effects) -> ObservedStore:
    """A store as the job sees it: counted, with the manners of a network if there are any."""
    model = ModelledStore(store, effects.clock, manners or NONE)
    return ObservedStore(ThreadedStore(model) if manners else model, model)


def open_store(directory: Path | None, manners: Manners | None, effects: Effects) -> ObservedStore:
    """A store under `directory` (None: in memory), with the manners of a network if given."""
    return behind(open_local(directory, effects), manners, effects)
