"""Any store, with the latencies and the bandwidth of S3, every request counted, and its price.

Invariants: a request waits its latency, then for its bytes; an object is visible once it is
transferred; a request that fails is counted and waits like any other; nothing else is changed. Each
line of a bill is one list price of `tidelog.cost.prices` times one quantity. How long the n-th
request of a kind takes is a pure function of seed, kind and number, equal bit for bit to the one in
`native/spark-benchmark`; `tests/golden/store_latency_v1.txt` holds both to it.

Figures are milliseconds of requests for small objects within us-east-1, connection open, as
measured in https://github.com/sirupsen/napkin-math/pull/39 (2026): p50, p90 and p99 of PUT and GET
of 128 KiB, of LIST, and of a GET answered with 304, which stands for HEAD. They fit other public
measurements: GET 27/47/113 and PUT 70 (p99 137) for 500 KiB, collected in
https://github.com/cdouglas/endive (analysis/dr_put_get.md). The rest is an assumption: the least is
half the median; p99.9 of PUT is the 200 ms that longer runs there gave and that napkin-math lists,
which is 2.27 times p99, and the others have that factor; the maximum is five times p99.9. DELETE,
for which nothing was found, is taken as PUT.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import compress
from typing import Any, Final, NamedTuple, TypeVar

from tidelog.cost.model.usage import DAY_S, MONTH_S
from tidelog.cost.prices import built_in_books
from tidelog.effects import Clock, Effects, loop_thread
from tidelog.storage.port import ObjectInfo, ObjectPart, ObjectStore

T = TypeVar("T")

_MASK: Final = (1 << 64) - 1
SHARES: Final = (0.0, 0.5, 0.9, 0.99, 0.999, 1.0)
"""Shares of the requests of a kind that take less than the columns of `TABLE` say."""
_PUT: Final = (15.0, 30.0, 54.0, 88.0, 200.0, 1000.0)
_SOURCE_MEDIAN: Final = 30.0
"""The median of PUT in the table: figures are scaled by it."""


class Kind(StrEnum):
    """The kind of a request; a conditional write is a PUT."""

    PUT = "put"
    GET = "get"
    LIST = "list"
    HEAD = "head"
    DELETE = "delete"


TABLE: Final = {
    Kind.PUT: _PUT,
    Kind.GET: (13.0, 26.0, 40.0, 73.0, 166.0, 830.0),
    Kind.LIST: (12.0, 24.0, 29.0, 46.0, 105.0, 525.0),
    Kind.HEAD: (5.0, 10.0, 13.0, 28.0, 64.0, 320.0),
    Kind.DELETE: _PUT,
}
_CODE: Final = {kind: code for code, kind in enumerate(Kind, 1)}


def latency_ms(median_ms: float, seed: int, kind: Kind, number: int) -> float:
    """Milliseconds of request `number` (from 0) of a kind where PUT's median is `median_ms`."""
    return median_ms * (_quantile(TABLE[kind], _uniform(seed, kind, number)) / _SOURCE_MEDIAN)


def _quantile(table: tuple[float, ...], share: float) -> float:
    upper = next(i for i in range(1, len(SHARES)) if share < SHARES[i])
    low, high = table[upper - 1], table[upper]
    start, end = SHARES[upper - 1], SHARES[upper]
    return low + (high - low) * ((share - start) / (end - start))


def _uniform(seed: int, kind: Kind, number: int) -> float:
    """In [0, 1), from the upper 53 bits of a hash."""
    mixed = _splitmix64(_splitmix64(_splitmix64(seed & _MASK) ^ _CODE[kind]) ^ number)
    return (mixed >> 11) * 2.0**-53


def _splitmix64(value: int) -> int:
    """One step of https://prng.di.unimi.it/splitmix64.c from a state."""
    z = (value + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


CONNECTION_MB_PER_S: Final = 90.0
"""AWS's guidance is one concurrent request per 85 to 90 MB/s ("Performance design patterns for
Amazon S3"); measured were 86 down, 100 up (napkin-math#39), and 93 down (dvassallo/s3-benchmark).
"""


@dataclass(frozen=True, slots=True)
class LatencyProfile:
    """How a store over a network behaves: equal profiles and an equal order of requests give equal
    latencies, in every process and on the Hadoop side too. 1 MB is 10^6 bytes; 0 stands for no
    latency and for no limit.
    """

    latency_ms: float = 30.0
    """Median of PUT; the other kinds follow."""
    mb_per_s: float = 50.0
    """All transfers together, up and down."""
    seed: int = 1
    connection_mb_per_s: float = CONNECTION_MB_PER_S
    """One transfer alone."""

    def latency_s(self, kind: Kind, number: int) -> float:
        """Seconds that request `number` (from 0) of a kind takes before its bytes."""
        if self.latency_ms == 0:
            return 0.0
        return latency_ms(self.latency_ms, self.seed, kind, number) / 1e3


NONE: Final = LatencyProfile(latency_ms=0, mb_per_s=0, connection_mb_per_s=0)
"""A store that answers as fast as the one below it."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a store was asked for, since it was opened or within some seconds; that of two adjacent
    times is the sum of theirs.
    """

    seconds: float
    requests: Mapping[str, float]
    """Requests of each kind: put, get, list, head, delete; on Hadoop's side copy and mkdirs too."""
    uploaded_bytes: float
    downloaded_bytes: float = 0.0
    stored_byte_seconds: float = 0.0

    @property
    def all_requests(self) -> float:
        return sum(self.requests.values())

    @property
    def stored_bytes(self) -> float:
        """The mean over the time."""
        return self.stored_byte_seconds / self.seconds if self.seconds else 0.0

    def since(self, earlier: "Traffic") -> "Traffic":
        """What lies between an earlier moment and this one."""
        return Traffic(
            self.seconds - earlier.seconds,
            {kind: n - earlier.requests[kind] for kind, n in self.requests.items()},
            self.uploaded_bytes - earlier.uploaded_bytes,
            self.downloaded_bytes - earlier.downloaded_bytes,
            self.stored_byte_seconds - earlier.stored_byte_seconds,
        )


CHUNK: Final = 256 * 1024
_MB: Final = 1e6


class Bandwidth:
    """A link that transfers reserve chunk by chunk on one time line; 0 MB/s is no limit.

    The sum of all transfers never exceeds the rate of the link, nor one of them that of its
    connection; n transfers at once get an equal share each, for they take turns in chunks of
    256 KiB, so a small one waits for one chunk of each of the others at most.
    """

    def __init__(self, clock: Clock, mb_per_s: float, connection_mb_per_s: float) -> None:
        self._clock = clock
        self._link = _seconds_per_byte(mb_per_s)
        self._slowest = max(self._link, _seconds_per_byte(connection_mb_per_s))
        self._free_at = 0.0

    async def transfer(self, size: int) -> None:
        """Return when `size` bytes are through."""
        if self._slowest == 0:
            return
        # A chunk starts when the one before it ended, not when this task woke up from it: late
        # wake-ups must not eat bandwidth.
        ended = self._clock.monotonic()
        while size > 0:
            chunk = min(size, CHUNK)
            started = max(ended, self._free_at)
            self._free_at = started + chunk * self._link
            ended = started + chunk * self._slowest
            size -= chunk
            await self._clock.sleep(max(0.0, ended - self._clock.monotonic()))


def _seconds_per_byte(mb_per_s: float) -> float:
    return 1 / (mb_per_s * _MB) if mb_per_s else 0.0


_LIST_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class Write:
    """One successful put or create; seconds on the store's clock."""

    name: str
    size: int
    started: float
    ended: float


class ModelledStore:
    """`inner` with the latencies and the bandwidth of `profile`. Sizes are in bytes.

    `requests` counts by kind, a listing as one per 1000 names; `stored` has the objects that were
    written through this store and not deleted. All of it can be read from any thread.

    With an event loop of its own it waits there, as a network library does: on the job's loop each
    chunk of a transfer would wait for a turn of the job, which says something about the model and
    nothing about a network.
    """

    def __init__(
        self, inner: ObjectStore, clock: Clock, profile: LatencyProfile, *, own_loop: bool = False
    ) -> None:
        self.url = inner.url
        self.request_metrics = inner.request_metrics
        self.cipher = inner.cipher
        self.profile = profile
        self.requests: dict[Kind, int] = dict.fromkeys(Kind, 0)
        self.uploaded_bytes = 0
        self.downloaded_bytes = 0
        self.writes: list[Write] = []
        """All puts and creates that have succeeded."""
        self.stored: dict[str, int] = {}
        self._inner = inner
        self._clock = clock
        self._bandwidth = Bandwidth(clock, profile.mb_per_s, profile.connection_mb_per_s)
        self.stored_bytes = 0
        """All that `stored` has."""
        self._byte_seconds = 0.0
        self._opened = self._stored_since = clock.monotonic()
        self._loop = loop_thread()[0] if own_loop else None

    def totals(self) -> Traffic:
        """Everything until now; `later.since(earlier)` is what lies between."""
        now = self._clock.monotonic()
        return Traffic(
            now - self._opened,
            {str(kind): count for kind, count in self.requests.items()},
            self.uploaded_bytes,
            self.downloaded_bytes,
            self._byte_seconds + self.stored_bytes * (now - self._stored_since),
        )

    def apart(self, effects: Effects) -> "ModelledStore":
        """Itself: all event loops share one link."""
        return self

    async def put(self, name: str, data: bytes) -> None:
        await self._write(self._inner.put, name, data)

    async def create(self, name: str, data: bytes) -> None:
        await self._write(self._inner.create, name, data)

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        return await self._away(self._get(name, start, length))

    async def _get(self, name: str, start: int, length: int | None) -> bytes:
        (latency_s,) = self._latencies_s(Kind.GET, 1)
        await self._waited(latency_s, 0)
        data = await self._inner.get(name, start, length)
        await self._transferred(len(data))
        return data

    async def get_parts(
        self, parts: Sequence[ObjectPart], patience_s: float | None = None
    ) -> Sequence[bytes | None]:
        """A request for each, side by side: all are here with the last of them, or after the
        patience.
        """
        return await self._away(self._get_parts(parts, patience_s))

    async def _get_parts(
        self, parts: Sequence[ObjectPart], patience_s: float | None
    ) -> Sequence[bytes | None]:
        latencies_s = self._latencies_s(Kind.GET, len(parts))
        slowest_s = max(latencies_s)
        limit_s = slowest_s if patience_s is None else patience_s
        await self._waited(min(limit_s, slowest_s), 0)
        answered = [latency_s <= limit_s for latency_s in latencies_s]
        found = list(compress(parts, answered))
        contents = iter(await self._inner.get_parts(found) if found else ())
        answers = [next(contents) if here else None for here in answered]
        await self._transferred(sum([len(answer) for answer in answers if answer is not None]))
        return answers

    async def _transferred(self, size: int) -> None:
        self.downloaded_bytes += size
        await self._bandwidth.transfer(size)

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
        await self._request(Kind.HEAD)
        return await self._inner.head(name)

    async def delete(self, name: str) -> None:
        await self._request(Kind.DELETE)
        await self._inner.delete(name)
        self._store(-self.stored.pop(name, 0))

    async def close(self) -> None:
        """Its own loop stays, for every event loop that shares the link closes the store alone; it
        ends with the process.
        """
        await self._inner.close()

    async def _write(
        self, write: Callable[[str, bytes], Awaitable[None]], name: str, data: bytes
    ) -> None:
        started, size = self._clock.monotonic(), len(data)
        self.uploaded_bytes += size
        await self._request(Kind.PUT, size)
        await write(name, data)
        self.writes.append(Write(name, size, started, self._clock.monotonic()))
        self._store(size - self.stored.get(name, 0))
        self.stored[name] = size

    async def _request(self, kind: Kind, size: int = 0) -> None:
        (latency_s,) = self._latencies_s(kind, 1)
        await self._away(self._waited(latency_s, size))

    def _latencies_s(self, kind: Kind, count: int) -> Sequence[float]:
        """The latencies of the next `count` requests of a kind, in seconds; counts the requests."""
        first = self.requests[kind]
        self.requests[kind] = first + count
        return [self.profile.latency_s(kind, first + number) for number in range(count)]

    async def _waited(self, latency_s: float, size: int) -> None:
        if latency_s:
            await self._clock.sleep(latency_s)
        await self._bandwidth.transfer(size)

    async def _away(self, work: Coroutine[Any, Any, T]) -> T:
        """In the event loop of its own, if it has one."""
        if self._loop is None:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _store(self, change: int) -> None:
        now = self._clock.monotonic()
        self._byte_seconds += self.stored_bytes * (now - self._stored_since)
        self.stored_bytes += change
        self._stored_since = now


class Daily(NamedTuple):
    """The bill of a day, in dollars."""

    total: float
    requests: float


def daily(traffic: Traffic, seconds: float | None = None) -> Daily:
    """The bill of a day in which all of it goes on as it was measured, or as if that had taken so
    many seconds, within one region of S3.
    """
    book = built_in_books()["aws-s3-standard"]
    per_1000 = {
        **dict.fromkeys(("put", "copy", "mkdirs"), book.put_per_1000),
        **dict.fromkeys(("get", "head"), book.get_per_1000),
        "list": book.list_per_1000,
        "delete": book.delete_per_1000,
    }
    times = DAY_S / (seconds or traffic.seconds)
    requests = sum(count * per_1000[kind] for kind, count in traffic.requests.items()) / 1000
    moved = book.moved(traffic.uploaded_bytes, traffic.downloaded_bytes)
    stored = traffic.stored_bytes * book.storage_gb_month * DAY_S / MONTH_S
    total = (requests + moved) * times + stored / book.gb_bytes
    return Daily(total, requests * times)
