"""A modelled store takes the time of its profile, shares its bandwidth, and counts everything.

The bill of a day: one price times one quantity per line, at the books' list prices.

Latencies are drawn from S3's shape: seeded, independent of order, the same everywhere.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from tests.golden.golden_latencies import bits, golden_bits
from tests.support.clock import VirtualClock
from tests.unit.storage.conformance import names
from tidelog.cost.prices import built_in_books
from tidelog.errors import ConfigError, ObjectExistsError, ObjectNotFoundError
from tidelog.storage.memory import MemoryStore
from tidelog_bench.store.latency import NONE, SHARES, TABLE, Kind, LatencyProfile, latency_ms
from tidelog_bench.store.modelled import CHUNK, ModelledStore, Traffic, Write, daily

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


def test_the_same_seed_gives_the_same_times_and_another_one_others() -> None:
    def times(seed: int) -> list[Write]:
        found: list[Write] = []

        async def scenario(store: ModelledStore, clock: VirtualClock) -> None:
            await asyncio.gather(*(store.put(f"{i}", bytes(i * 1000)) for i in range(1, 30)))
            found.extend(store.writes)

        run(LatencyProfile(seed=seed), scenario)
        return found

    assert times(1) == times(1) != times(2)


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


def test_one_transfer_has_the_rate_of_its_connection_and_two_have_twice_that() -> None:
    async def scenario(store: ModelledStore, clock: VirtualClock) -> None:
        await store.put("a", bytes(5 * MB))
        assert clock.monotonic() == pytest.approx(0.1)
        await asyncio.gather(store.put("b", bytes(5 * MB)), store.put("c", bytes(5 * MB)))
        assert clock.monotonic() == pytest.approx(0.2, abs=2 * CHUNK / 1e9)

    run(LatencyProfile(latency_ms=0.0, mb_per_s=1000.0, connection_mb_per_s=50.0), scenario)


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


def test_what_is_stored_is_what_was_written_and_not_deleted_and_traffic_has_its_mean() -> None:
    async def scenario(store: ModelledStore, clock: VirtualClock) -> None:
        await store.put("before", bytes(1000))
        start = store.totals()
        await clock.sleep(3.0)
        await store.put("a", bytes(100))
        await store.put("a", bytes(3000))
        await clock.sleep(1.0)
        await store.delete("a")
        await store.delete("absent")
        assert (store.stored, store.stored_bytes) == ({"before": 1000}, 1000)
        assert store.deletions == [("a", 4.0), ("absent", 4.0)]
        traffic = store.totals().since(start)
        assert traffic.seconds == pytest.approx(4.0)
        assert traffic.stored_bytes == pytest.approx((3 * 1000 + 1 * 4000) / 4)
        assert traffic.uploaded_bytes == 3100
        assert traffic.requests == {"put": 2, "get": 0, "list": 0, "head": 0, "delete": 2}

    run(NONE, scenario)


@pytest.mark.parametrize("name", ["latency_ms", "mb_per_s", "connection_mb_per_s"])
def test_a_profile_that_cannot_be_is_refused(name: str) -> None:
    for value in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ConfigError, match=name):
            LatencyProfile(**{name: value})


GB = 1 << 30


def test_a_put_a_second_costs_its_price_86_400_times_a_day() -> None:
    assert daily(Traffic(1, {"put": 1}, 0)).total == pytest.approx(86.4 * 0.005)


def test_every_kind_has_its_own_price() -> None:
    per_kind = {kind: daily(Traffic(86.4, {kind: 1}, 0)).requests for kind in ("get", "list")}
    assert per_kind == pytest.approx({"get": 0.0004, "list": 0.005})
    same = daily(Traffic(86.4, {"copy": 1, "mkdirs": 1, "head": 1, "delete": 1}, 0))
    assert same.requests == pytest.approx(2 * 0.005 + 0.0004 + 0.0)


def test_a_gb_stored_costs_a_share_of_its_month() -> None:
    found = daily(Traffic(10, {}, 0, stored_bytes=GB))
    assert found.storage == pytest.approx(0.023 * 24 / 730)
    assert found.total == found.storage


def test_bytes_cost_where_the_provider_asks_for_them() -> None:
    express = built_in_books()["aws-s3-express"]
    found = daily(Traffic(86_400, {}, 2 * GB, downloaded_bytes=GB), express)
    assert found.transfer == pytest.approx(2 * 0.0032 + 0.0006)
    assert daily(Traffic(86_400, {}, 2 * GB)).transfer == 0.0


def test_the_bill_does_not_depend_on_how_long_was_measured() -> None:
    short = daily(Traffic(10, {"put": 5, "list": 1}, 0, stored_bytes=GB)).total
    long = daily(Traffic(40, {"put": 20, "list": 4}, 0, stored_bytes=GB)).total
    assert short == pytest.approx(long)


@pytest.mark.parametrize("traffic", [Traffic(1, {"rename": 1}, 0), Traffic(0, {"put": 1}, 0)])
def test_what_has_no_price_and_what_took_no_time_is_refused(traffic: Traffic) -> None:
    with pytest.raises(ConfigError, match="measured traffic"):
        daily(traffic)


DRAWS = 40_000


def draws(kind: Kind, seed: int = 1, count: int = DRAWS) -> list[float]:
    return [latency_ms(30.0, seed, kind, number) for number in range(count)]


def test_the_draws_are_those_of_the_golden_file_bit_for_bit() -> None:
    golden = golden_bits()
    assert len(golden) == 450
    assert {draw: bits(draw) for draw in golden} == golden


@pytest.mark.parametrize("kind", Kind)
def test_each_point_of_the_table_has_its_share_of_the_draws_below_it(kind: Kind) -> None:
    found = draws(kind)
    for share, limit in zip(SHARES, TABLE[kind], strict=True):
        below = sum(ms < limit for ms in found) / DRAWS
        assert below == pytest.approx(share, abs=0.01 if share < 0.99 else 0.002)


def test_the_median_of_put_is_what_was_asked_for() -> None:
    assert TABLE[Kind.PUT][SHARES.index(0.5)] == 30.0


@pytest.mark.parametrize("kind", Kind)
def test_latencies_rise_in_the_table_and_scale_with_the_median(kind: Kind) -> None:
    assert all(low < high for low, high in pairwise(TABLE[kind]))
    once, doubled = (
        [latency_ms(median, 1, kind, number) for number in range(100)] for median in (30.0, 60.0)
    )
    assert doubled == pytest.approx([2 * ms for ms in once])


def test_seeds_and_kinds_give_sequences_of_their_own() -> None:
    sequences = [tuple(draws(kind, seed, 50)) for kind in Kind for seed in (1, 2)]
    assert len(set(sequences)) == len(sequences)
    shares = [latency_ms(30.0, 1, kind, 0) for kind in (Kind.PUT, Kind.DELETE)]
    assert shares[0] != shares[1]
