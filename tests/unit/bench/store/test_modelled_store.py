"""A modelled store takes the time of its profile, shares its bandwidth, and counts everything.

Latencies are drawn from S3's shape: seeded, independent of order, the same everywhere.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.golden.golden_latencies import bits, golden_bits
from tests.support.clock import VirtualClock
from tests.unit.storage.conformance import names
from tidelog.errors import ObjectExistsError, ObjectNotFoundError
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectPart
from tidelog_bench.store import CHUNK, NONE, Kind, LatencyProfile, ModelledStore

MB = 1_000_000
PROFILE = LatencyProfile(latency_ms=30.0, mb_per_s=50.0, seed=7)
NO_LATENCY = LatencyProfile(latency_ms=0.0, mb_per_s=50.0)

Scenario = Callable[[ModelledStore, VirtualClock], Awaitable[None]]


def run(profile: LatencyProfile, scenario: Scenario) -> None:
    async def main() -> None:
        clock = VirtualClock()
        await scenario(ModelledStore(MemoryStore(), clock, profile), clock)

    asyncio.run(main())


async def finished_at(store: ModelledStore, clock: VirtualClock, name: str, size: int) -> float:
    await store.put(name, bytes(size))
    return clock.monotonic()


def test_a_request_takes_the_latency_of_its_kind_and_number_and_its_bytes() -> None:
    async def scenario(store: ModelledStore, clock: VirtualClock) -> None:
        expected = 0.0

        def took(kind: Kind, number: int, size: int = 0) -> None:
            nonlocal expected
            expected += PROFILE.latency_s(kind, number) + size / 50e6
            assert clock.monotonic() == pytest.approx(expected)

        await store.put("a", bytes(5 * MB))
        took(Kind.PUT, 0, 5 * MB)
        await store.create("b", bytes(MB))
        took(Kind.PUT, 1, MB)
        await store.get("a", 0, 2 * MB)
        took(Kind.GET, 0, 2 * MB)
        await store.head("a")
        took(Kind.HEAD, 0)
        await names(store)
        took(Kind.LIST, 0)
        await store.delete("a")
        took(Kind.DELETE, 0)

    run(PROFILE, scenario)


def test_parts_of_objects_are_a_request_each_and_take_as_long_as_the_slowest() -> None:
    async def scenario(store: ModelledStore, clock: VirtualClock) -> None:
        await store.put("a", bytes(MB))
        began = clock.monotonic()
        await store.get_parts([ObjectPart("a", start, 1000) for start in range(5)])
        latencies_s = [PROFILE.latency_s(Kind.GET, number) for number in range(5)]
        assert clock.monotonic() - began == pytest.approx(max(latencies_s) + 5000 / 50e6)
        assert store.requests[Kind.GET] == 5
        assert store.downloaded_bytes == 5000

    run(PROFILE, scenario)


def test_parts_that_are_late_are_not_waited_for() -> None:
    async def scenario(store: ModelledStore, clock: VirtualClock) -> None:
        await store.put("a", bytes(MB))
        began = clock.monotonic()
        latencies_s = [PROFILE.latency_s(Kind.GET, number) for number in range(5)]
        patience_s = sorted(latencies_s)[2]
        parts = [ObjectPart("a", start, 1000) for start in range(5)]
        contents = await store.get_parts(parts, patience_s)
        here = [content is not None for content in contents]
        assert here == [latency_s <= patience_s for latency_s in latencies_s]
        assert clock.monotonic() - began == pytest.approx(patience_s + 3000 / 50e6)
        assert store.downloaded_bytes == 3000

    run(PROFILE, scenario)


def test_transfers_at_once_share_the_link_chunk_by_chunk() -> None:
    async def scenario(store: ModelledStore, clock: VirtualClock) -> None:
        transfers = (finished_at(store, clock, f"{i}", 5 * MB) for i in range(4))
        ends = await asyncio.gather(*transfers)
        assert max(ends) == pytest.approx(4 * 0.1)
        assert min(ends) == pytest.approx(max(ends), abs=4 * CHUNK / 50e6)
        # Uploads and downloads share it too.
        began = clock.monotonic()
        await asyncio.gather(store.get("1"), store.put("b", bytes(5 * MB)))
        assert clock.monotonic() - began == pytest.approx(0.2)
        # A small request does not wait for a large one.
        began = clock.monotonic()
        large = asyncio.ensure_future(finished_at(store, clock, "large", 50 * MB))
        assert await finished_at(store, clock, "small", 1000) - began <= 2 * CHUNK / 50e6
        assert await large - began == pytest.approx(1.0, abs=0.001)

    run(NO_LATENCY, scenario)


def test_requests_and_bytes_are_counted_and_a_refused_request_too() -> None:
    async def scenario(store: ModelledStore, clock: VirtualClock) -> None:
        await store.put("a", b"12345")
        await store.create("b", b"123")
        with pytest.raises(ObjectExistsError):
            await store.create("b", b"1234")
        with pytest.raises(ObjectNotFoundError):
            await store.get("absent")
        await store.get("a", 1, 2)
        assert store.requests == {"put": 3, "get": 2, "list": 0, "head": 0, "delete": 0}
        assert (store.uploaded_bytes, store.downloaded_bytes) == (12, 2)
        assert [(write.name, write.size) for write in store.writes] == [("a", 5), ("b", 3)]
        # A listing costs a request per thousand names.
        for number in range(2498):
            await store.put(f"{number:05d}", b"x")
        assert len(await names(store)) == 2500
        assert store.requests[Kind.LIST] == 3
        # Without latency and limits nothing takes time.
        assert clock.monotonic() == 0.0

    run(NONE, scenario)


def test_the_draws_are_those_of_the_golden_file_bit_for_bit() -> None:
    golden = golden_bits()
    assert len(golden) == 450
    assert {draw: bits(draw) for draw in golden} == golden
