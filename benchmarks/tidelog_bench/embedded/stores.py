"""Stores of the benchmarks: in memory or local, and the model of a network before them.

Invariant: whatever a run asks of its store is counted in one `ModelledStore`.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Final, TypeVar

from tidelog.effects import Effects, loop_thread
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectInfo, ObjectStore
from tidelog_bench.store.latency import NONE, LatencyProfile
from tidelog_bench.store.modelled import ModelledStore

T = TypeVar("T")


class ThreadedStore:
    """Any store on an event loop of its own, as a network library has one.

    On the job's loop each chunk of a modelled transfer would wait for a turn of the job, which
    says something about the model and nothing about a network.
    """

    def __init__(self, inner: ObjectStore) -> None:
        self.url = inner.url
        self.request_metrics = inner.request_metrics
        self.cipher = inner.cipher
        self._inner = inner
        self._loop, _ = loop_thread()

    async def _call(self, request: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(request, self._loop))

    async def put(self, name: str, data: bytes) -> None:
        await self._call(self._inner.put(name, data))

    async def create(self, name: str, data: bytes) -> None:
        await self._call(self._inner.create(name, data))

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        return await self._call(self._inner.get(name, start, length))

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        # All names are read first.
        for info in await self._call(_collected(self._inner.list(prefix, start_after))):
            yield info

    async def head(self, name: str) -> ObjectInfo:
        return await self._call(self._inner.head(name))

    async def delete(self, name: str) -> None:
        await self._call(self._inner.delete(name))

    async def close(self) -> None:
        await self._call(self._inner.close())
        self._loop.call_soon_threadsafe(self._loop.stop)


async def _collected(infos: AsyncIterator[ObjectInfo]) -> list[ObjectInfo]:
    return [info async for info in infos]


_KEPT: Final = (object_names.CHECKPOINTS, object_names.MATERIALIZATIONS)


class ArchivedStore(MemoryStore):
    """A store in memory; `archive` has every manifest and descriptor of the run, also those that
    the job has deleted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.archive = MemoryStore()

    def _store(self, name: str, data: bytes) -> None:
        super()._store(name, data)
        if name.startswith(_KEPT):
            self.archive._store(name, data)


def modelled(
    store: ObjectStore, link: LatencyProfile | None, effects: Effects
) -> tuple[ObjectStore, ModelledStore]:
    """A store as the job sees it, over a network if there is one, and what counts its requests."""
    model = ModelledStore(store, effects.clock, link or NONE)
    return (ThreadedStore(model) if link else model), model
