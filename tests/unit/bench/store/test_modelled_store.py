"""A modelled store takes the time of its profile, shares its bandwidth, and counts everything."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.support.clock import VirtualClock
from tests.unit.storage.conformance import names
from tidelog.errors import ConfigError, ObjectExistsError, ObjectNotFoundError
from tidelog.storage.memory import MemoryStore
from tidelog_bench.store.latency import NONE, Kind, LatencyProfile
from tidelog_bench.store.modelled import CHUNK, ModelledStore, Write

MB = 1_000_000
PROFILE = LatencyProfile(latency_ms=30.0, mb_per_s=50.0, seed=7)
NO_LATENCY = LatencyProfile(latency_ms=0.0, mb_per_s=50.0)

Scenario = Callable[[ModelledStore, VirtualClock], Awaitable[None]]


def run(profile: LatencyProfile, scenario: Scenario, inner: MemoryStore | None = None) -> None:
    async def main() -> None:
        clock = VirtualClock()
        await scenario(ModelledStore(inner or MemoryStore(), clock, profile), clock)

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


def test_the_same_seed_gives_the_same_times_and_another_one_others() -> None:
    def times(seed: int) -> list[Write]:
        found: list[Write] = []

        async def scenario(store: ModelledStore, clock: VirtualClock) -> None:
            await asyncio.gather(*(store.put(f"{i}", bytes(i * 1000)) for i in range(1, 30)))
            found.extend(store.writes)

        run(LatencyProfile(seed=seed), scenario)
        return found

    assert times(1) == times(1)
    assert times(1) != times(2)


def test_without_latency_and_limits_nothing_takes_time() -> None:
    async def scenario(store: ModelledStore, clock: VirtualClock) -> None:
        await store.put("a", bytes(50 * MB))
        await store.get("a")
        await names(store)
        assert clock.monotonic() == 0.0

    run(NONE, scenario)


def test_equal_transfers_at_once_share_the_link_and_end_together() -> None:
    async def scenario(store: ModelledStore, clock: VirtualClock) -> None:
        transfers = (finished_at(store, clock, f"{i}", 5 * MB) for i in range(4))
        ends = await asyncio.gather(*transfers)
        assert max(ends) == pytest.approx(4 * 0.1)
        assert min(ends) == pytest.approx(max(ends), abs=4 * CHUNK / 50e6)

    run(NO_LATENCY, scenario)


def test_uploads_and_downloads_share_one_link() -> None:
    async def scenario(store: ModelledStore, clock: VirtualClock) -> None:
        await store.put("a", bytes(5 * MB))
        began = clock.monotonic()
        await asyncio.gather(store.get("a"), store.put("b", bytes(5 * MB)))
        assert clock.monotonic() - began == pytest.approx(0.2)

    run(NO_LATENCY, scenario)


def test_a_small_request_does_not_wait_for_a_large_transfer() -> None:
    async def scenario(store: ModelledStore, clock: VirtualClock) -> None:
        large = asyncio.ensure_future(finished_at(store, clock, "large", 50 * MB))
        small = await finished_at(store, clock, "small", 1000)
        assert small <= 2 * CHUNK / 50e6
        assert await large == pytest.approx(1.0, abs=0.001)

    run(NO_LATENCY, scenario)


def test_one_transfer_has_the_rate_of_its_connection_and_two_have_twice_that() -> None:
    wide = LatencyProfile(latency_ms=0.0, mb_per_s=1000.0, connection_mb_per_s=50.0)

    async def scenario(store: ModelledStore, clock: VirtualClock) -> None:
        await store.put("a", bytes(5 * MB))
        assert clock.monotonic() == pytest.approx(0.1)
        await asyncio.gather(store.put("b", bytes(5 * MB)), store.put("c", bytes(5 * MB)))
        assert clock.monotonic() == pytest.approx(0.2, abs=2 * CHUNK / 1e9)

    run(wide, scenario)


def test_a_listing_costs_a_request_per_thousand_names() -> None:
    async def scenario(store: ModelledStore, clock: VirtualClock) -> None:
        for number in range(2500):
            await store.put(f"{number:05d}", b"x")
        assert len(await names(store)) == 2500
        assert store.requests[Kind.LIST] == 3

    run(NONE, scenario)


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

    run(PROFILE, scenario)


def test_what_is_stored_is_what_was_written_and_not_deleted() -> None:
    inner = MemoryStore()

    async def scenario(store: ModelledStore, clock: VirtualClock) -> None:
        await store.put("a", bytes(100))
        await store.put("a", bytes(70))
        await store.put("b", bytes(5))
        await store.delete("b")
        await store.delete("absent")
        assert store.stored == {"a": 70}
        assert [name for name, _ in store.deletions] == ["b", "absent"]
        assert store.stored_bytes == sum([info.size async for info in inner.list("")]) == 70

    run(NONE, scenario, inner)


def test_traffic_between_two_moments_has_the_mean_of_what_was_stored() -> None:
    async def scenario(store: ModelledStore, clock: VirtualClock) -> None:
        await store.put("before", bytes(1000))
        start = store.totals()
        await clock.sleep(3.0)
        await store.put("a", bytes(3000))
        await clock.sleep(1.0)
        await store.delete("a")
        traffic = store.totals().since(start)
        assert traffic.seconds == pytest.approx(4.0)
        assert traffic.stored_bytes == pytest.approx((3 * 1000 + 1 * 4000) / 4)
        assert traffic.uploaded_bytes == 3000
        assert traffic.requests == {"put": 1, "get": 0, "list": 0, "head": 0, "delete": 1}

    run(NONE, scenario)


@pytest.mark.parametrize("name", ["latency_ms", "mb_per_s", "connection_mb_per_s"])
@pytest.mark.parametrize("value", [-1.0, float("inf"), float("nan")])
def test_a_profile_that_cannot_be_is_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=name):
        LatencyProfile(**{name: value})
