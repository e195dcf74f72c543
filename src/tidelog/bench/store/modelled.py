"""Any store, with the manners of S3, and every request counted.

Invariants: a request waits its latency, then for its bytes; an object is visible once it is
transferred; a request that fails is counted and waits like any other; nothing else is changed.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from tidelog.bench.store.bandwidth import Bandwidth
from tidelog.bench.store.latency import Kind
from tidelog.bench.store.manners import Manners
from tidelog.bench.store.traffic import Totals
from tidelog.effects import Clock
from tidelog.storage.port import ObjectInfo, ObjectStore

_LIST_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class Write:
    """One successful put or create; seconds on the store's clock."""

    name: str
    size: int
    started: float
    ended: float


class ModelledStore:
    """`inner` behind `manners`. Sizes are in bytes.

    `requests` counts by kind, a listing as one per 1000 names; `stored` has the objects that were
    written through this store and not deleted. All of it can be read from any thread.
    """

    def __init__(self, inner: ObjectStore, clock: Clock, manners: Manners) -> None:
        self.url = inner.url
        self.manners = manners
        self.requests: dict[Kind, int] = dict.fromkeys(Kind, 0)
        self.uploaded_bytes = 0
        self.downloaded_bytes = 0
        self.writes: list[Write] = []
        self.stored: dict[str, int] = {}
        self._inner = inner
        self._clock = clock
        self._bandwidth = Bandwidth(clock, manners.mb_per_s, manners.connection_mb_per_s)
        self._stored_bytes = 0
        self._byte_seconds = 0.0
        self._stored_since = clock.monotonic()

    @property
    def stored_bytes(self) -> int:
        """All that `stored` has."""
        return self._stored_bytes

    @property
    def moved_bytes(self) -> int:
        """What has passed the network until now, up and down, transfers under way included."""
        return self._bandwidth.moved_bytes

    def totals(self) -> Totals:
        """Everything until now; `later.since(earlier)` is what lies between."""
        at = self._clock.monotonic()
        return Totals(
            at=at,
            requests={str(kind): count for kind, count in self.requests.items()},
            uploaded_bytes=self.uploaded_bytes,
            downloaded_bytes=self.downloaded_bytes,
            stored_byte_seconds=self._byte_seconds + self._stored_bytes * (at - self._stored_since),
        )

    async def put(self, name: str, data: bytes) -> None:
        """Write or overwrite `name`."""
        started = await self._upload(data)
        await self._inner.put(name, data)
        self._written(name, len(data), started)

    async def create(self, name: str, data: bytes) -> None:
        """Write `name` if it is absent when transferred; raises ObjectExistsError."""
        started = await self._upload(data)
        await self._inner.create(name, data)
        self._written(name, len(data), started)

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Read a range; raises ObjectNotFoundError."""
        await self._request(Kind.GET)
        data = await self._inner.get(name, start, length)
        self.downloaded_bytes += len(data)
        await self._bandwidth.transfer(len(data))
        return data

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """Names in ascending order, a request per thousand."""
        await self._request(Kind.LIST)
        yielded = 0
        async for info in self._inner.list(prefix, start_after):
            if yielded and yielded % _LIST_PAGE == 0:
                await self._request(Kind.LIST)
            yield info
            yielded += 1

    async def head(self, name: str) -> ObjectInfo:
        """Size of `name`; raises ObjectNotFoundError."""
        await self._request(Kind.HEAD)
        return await self._inner.head(name)

    async def delete(self, name: str) -> None:
        """Remove `name` if it is there."""
        await self._request(Kind.DELETE)
        await self._inner.delete(name)
        self._store(-self.stored.pop(name, 0))

    async def close(self) -> None:
        """Close the inner store."""
        await self._inner.close()

    async def _upload(self, data: bytes) -> float:
        started = self._clock.monotonic()
        await self._request(Kind.PUT)
        self.uploaded_bytes += len(data)
        await self._bandwidth.transfer(len(data))
        return started

    async def _request(self, kind: Kind) -> None:
        number = self.requests[kind]
        self.requests[kind] = number + 1
        latency = self.manners.latency_s(kind, number)
        if latency:
            await self._clock.sleep(latency)

    def _written(self, name: str, size: int, started: float) -> None:
        self.writes.append(Write(name, size, started, self._clock.monotonic()))
        self._store(size - self.stored.get(name, 0))
        self.stored[name] = size

    def _store(self, change: int) -> None:
        now = self._clock.monotonic()
        self._byte_seconds += self._stored_bytes * (now - self._stored_since)
        self._stored_bytes += change
        self._stored_since = now
