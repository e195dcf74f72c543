"""A store behind a link of known latency and bandwidth, for measurements.

Invariants: every request costs one latency; all transfers, up and down, share one link, so their
sum never exceeds its rate; n transfers at once get an equal share each, for they take turns in
chunks of 256 KiB, and a small request waits for one chunk of each of the others at most.
"""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

from tidelog.effects import Clock
from tidelog.errors import ConfigError
from tidelog.storage.port import ObjectInfo, ObjectStore

_CHUNK: Final = 256 * 1024
_LIST_PAGE: Final = 1000


class ThrottledStore:
    """Any store, slowed down to `latency_s` seconds a request and `bytes_per_s` for all together.

    `requests` counts requests per operation (a listing makes one per 1000 names); `bytes_written`
    and `bytes_read` count payload. Raises ConfigError for a latency below or a rate of 0.
    """

    def __init__(
        self, inner: ObjectStore, clock: Clock, *, latency_s: float, bytes_per_s: float
    ) -> None:
        if latency_s < 0 or bytes_per_s <= 0:
            raise ConfigError(
                "throttled store",
                expected="latency_s >= 0 and bytes_per_s > 0",
                found=f"{latency_s} and {bytes_per_s}",
                action="correct the value",
            )
        self.url = inner.url
        self.requests: Counter[str] = Counter()
        self.bytes_written = 0
        self.bytes_read = 0
        self._inner = inner
        self._clock = clock
        self._latency_s = latency_s
        self._link = _Link(clock, bytes_per_s)

    async def put(self, name: str, data: bytes) -> None:
        """Write or overwrite `name`, visible once it is transferred."""
        await self._upload("put", data)
        await self._inner.put(name, data)

    async def create(self, name: str, data: bytes) -> None:
        """Write `name` if it is absent when transferred; raises ObjectExistsError."""
        await self._upload("create", data)
        await self._inner.create(name, data)

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Read a range in bytes; raises ObjectNotFoundError."""
        await self._request("get")
        data = await self._inner.get(name, start, length)
        self.bytes_read += len(data)
        await self._link.transfer(len(data))
        return data

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """Names in ascending order, a request per thousand."""
        await self._request("list")
        yielded = 0
        async for info in self._inner.list(prefix, start_after):
            if yielded and yielded % _LIST_PAGE == 0:
                await self._request("list")
            yield info
            yielded += 1

    async def head(self, name: str) -> ObjectInfo:
        """Size of `name` in bytes; raises ObjectNotFoundError."""
        await self._request("head")
        return await self._inner.head(name)

    async def delete(self, name: str) -> None:
        """Remove `name` if it is there."""
        await self._request("delete")
        await self._inner.delete(name)

    async def close(self) -> None:
        """Close the inner store."""
        await self._inner.close()

    async def _upload(self, operation: str, data: bytes) -> None:
        await self._request(operation)
        self.bytes_written += len(data)
        await self._link.transfer(len(data))

    async def _request(self, operation: str) -> None:
        self.requests[operation] += 1
        await self._clock.sleep(self._latency_s)


class _Link:
    """Bandwidth that transfers reserve chunk by chunk on one time line."""

    def __init__(self, clock: Clock, bytes_per_s: float) -> None:
        self._clock = clock
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    async def transfer(self, size: int) -> None:
        # A chunk starts when the one before it ended, not when this task woke up from it: late
        # wake-ups must not eat bandwidth.
        ended = self._clock.monotonic()
        while size > 0:
            chunk = min(size, _CHUNK)
            ended = max(ended, self._free_at) + chunk / self._bytes_per_s
            self._free_at = ended
            size -= chunk
            await self._clock.sleep(max(0.0, ended - self._clock.monotonic()))
