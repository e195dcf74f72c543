"""A throttled store behaves like a link of the given latency and bandwidth."""

import asyncio

import pytest

from tests.support.clock import VirtualClock
from tests.unit.storage.conformance import names
from tidelog.errors import ConfigError
from tidelog.storage.memory import MemoryStore
from tidelog.storage.throttled import ThrottledStore

MB = 1_000_000


def throttled(inner: MemoryStore | None = None) -> tuple[ThrottledStore, VirtualClock]:
    """30 ms a request, 50 MB/s."""
    clock = VirtualClock()
    return ThrottledStore(inner or MemoryStore(), clock, latency_s=0.03, bytes_per_s=50e6), clock


async def finished_at(clock: VirtualClock, store: ThrottledStore, name: str, size: int) -> float:
    await store.put(name, bytes(size))
    return clock.monotonic()


def test_a_transfer_takes_one_latency_and_its_bytes() -> None:
    async def main() -> None:
        store, clock = throttled()
        await store.put("name", bytes(5 * MB))
        assert clock.monotonic() == pytest.approx(0.03 + 0.1)
        await store.get("name", 0, 1 * MB)
        assert clock.monotonic() == pytest.approx(0.13 + 0.03 + 0.02)
        await store.head("name")
        await store.delete("name")
        assert clock.monotonic() == pytest.approx(0.18 + 0.06)
        assert store.requests == {"put": 1, "get": 1, "head": 1, "delete": 1}
        assert (store.bytes_written, store.bytes_read) == (5 * MB, 1 * MB)

    asyncio.run(main())


def test_equal_transfers_at_once_share_the_link_and_end_together() -> None:
    async def main() -> None:
        store, clock = throttled()
        ends = await asyncio.gather(*(finished_at(clock, store, f"{i}", 5 * MB) for i in range(4)))
        assert max(ends) == pytest.approx(0.03 + 4 * 0.1)
        assert min(ends) == pytest.approx(max(ends), abs=4 * 262_144 / 50e6)

    asyncio.run(main())


def test_a_small_request_does_not_wait_for_a_large_transfer() -> None:
    async def main() -> None:
        store, clock = throttled()
        large = asyncio.ensure_future(finished_at(clock, store, "large", 50 * MB))
        small = await finished_at(clock, store, "small", 1000)
        assert small == pytest.approx(0.03, abs=2 * 262_144 / 50e6)
        assert await large == pytest.approx(0.03 + 1.0, abs=0.001)

    asyncio.run(main())


def test_a_listing_costs_a_request_per_thousand_names() -> None:
    async def main() -> None:
        inner = MemoryStore()
        for number in range(2500):
            await inner.put(f"{number:05d}", b"x")
        store, clock = throttled(inner)
        assert len(await names(store)) == 2500
        assert store.requests == {"list": 3}
        assert clock.monotonic() == pytest.approx(3 * 0.03)

    asyncio.run(main())


@pytest.mark.parametrize(("latency_s", "bytes_per_s"), [(-1.0, 1.0), (0.0, 0.0)])
def test_a_link_that_cannot_exist_is_refused(latency_s: float, bytes_per_s: float) -> None:
    with pytest.raises(ConfigError, match="throttled"):
        ThrottledStore(MemoryStore(), VirtualClock(), latency_s=latency_s, bytes_per_s=bytes_per_s)
