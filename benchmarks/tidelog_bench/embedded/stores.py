"""Stores of the benchmarks: local or in memory, behind the model of a network, archived.

Invariant: whatever a run asks of its store is counted in one `ModelledStore`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from tidelog.effects import Effects, loop_thread
from tidelog.storage import object_names
from tidelog.storage.errors import object_not_found
from tidelog.storage.local import LocalStore
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectInfo, ObjectStore
from tidelog_bench.embedded.meter import CLOCK
from tidelog_bench.store.latency import NONE, LatencyProfile
from tidelog_bench.store.modelled import ModelledStore, Write

T = TypeVar("T")


class ForwardingStore:
    """A store in front of another one; every request but a listing goes through `call`."""

    def __init__(self, inner: ObjectStore) -> None:
        self.url = inner.url
        self.request_metrics = inner.request_metrics
        self.cipher = inner.cipher
        self.inner = inner

    async def call(self, request: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        """Make a request of the inner store."""
        return await request(*arguments)

    async def put(self, name: str, data: bytes) -> None:
        """Write or overwrite."""
        await self.call(self.inner.put, name, data)

    async def create(self, name: str, data: bytes) -> None:
        """Write if absent."""
        await self.call(self.inner.create, name, data)

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Read a range."""
        return await self.call(self.inner.get, name, start, length)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """The objects whose names begin with `prefix`, sorted, behind the name `start_after`."""
        async for info in self.inner.list(prefix, start_after):
            yield info

    async def head(self, name: str) -> ObjectInfo:
        """Size of a name."""
        return await self.call(self.inner.head, name)

    async def delete(self, name: str) -> None:
        """Remove a name."""
        await self.call(self.inner.delete, name)

    async def close(self) -> None:
        """Close the inner store."""
        await self.inner.close()


class ThreadedStore(ForwardingStore):
    """Any store on an event loop of its own, as a network library has one.

    On the job's loop each chunk of a modelled transfer would wait for a turn of the job, which
    says something about the model and nothing about a network.
    """

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._loop = loop_thread()

    async def call(self, request: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        """Make a request on the other loop."""
        there = asyncio.run_coroutine_threadsafe(request(*arguments), self._loop)
        return await asyncio.wrap_future(there)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """List names; all of them are read first."""
        for info in await self.call(_collected, self.inner.list(prefix, start_after)):
            yield info

    async def close(self) -> None:
        """Close the inner store and end the loop."""
        await self.call(self.inner.close)
        self._loop.call_soon_threadsafe(self._loop.stop)


async def _collected(infos: AsyncIterator[ObjectInfo]) -> list[ObjectInfo]:
    return [info async for info in infos]


class ObservedStore(ForwardingStore):
    """The store of a run; `model` counts what passes."""

    def __init__(self, inner: ObjectStore, model: ModelledStore) -> None:
        super().__init__(inner)
        self.model = model

    @property
    def writes(self) -> list[Write]:
        """All that have succeeded, with their times."""
        return self.model.writes


_KEPT: Final = (object_names.CHECKPOINTS, object_names.SEGMENTS, object_names.MATERIALIZATIONS)


@dataclass(frozen=True)
class Deletion:
    """An object that the job did not need any more, by the wall clock of the process."""

    name: str
    at: float


class Archive(ForwardingStore):
    """A store that keeps every manifest, descriptor and log segment of a run in `inner`.

    The job sees no difference: objects are dropped as it asks, but those of the log stay readable
    in `inner` after the run. Table files are not kept. What was deleted, and when, is noted.
    """

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.deletions: list[Deletion] = []
        self._gone: set[str] = set()

    async def put(self, name: str, data: bytes) -> None:
        """Write or overwrite; a name that was deleted and is created stays taken."""
        await self.inner.put(name, data)
        self._gone.discard(name)

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Read a range."""
        self._check(name)
        return await self.inner.get(name, start, length)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """List names that were not deleted."""
        async for info in self.inner.list(prefix, start_after):
            if info.name not in self._gone:
                yield info

    async def head(self, name: str) -> ObjectInfo:
        """Size of a name."""
        self._check(name)
        return await self.inner.head(name)

    async def delete(self, name: str) -> None:
        """Forget a name, and remove it unless it is kept."""
        if not name.startswith(_KEPT):
            await self.inner.delete(name)
        self._gone.add(name)
        self.deletions.append(Deletion(name, CLOCK.monotonic()))

    def _check(self, name: str) -> None:
        if name in self._gone:
            raise object_not_found(self.url, name)


def open_local(directory: Path | None, effects: Effects) -> ObjectStore:
    """A store under `directory` (None: in memory)."""
    return MemoryStore() if directory is None else LocalStore(str(directory), effects)


def behind(store: ObjectStore, profile: LatencyProfile | None, effects: Effects) -> ObservedStore:
    """A store as the job sees it: counted, behind a network if there is one."""
    model = ModelledStore(store, effects.clock, profile or NONE)
    return ObservedStore(ThreadedStore(model) if profile else model, model)


def open_store(
    directory: Path | None, profile: LatencyProfile | None, effects: Effects
) -> ObservedStore:
    """A store under `directory` (None: in memory), behind a network if given."""
    return behind(open_local(directory, effects), profile, effects)
