"""Table uploads keep to their share of the bandwidth, and get it."""

import asyncio
import contextlib

import pytest

from tests.support.clock import VirtualClock
from tidelog.materialize.pacing import (
    HELD_BYTES,
    PATIENCE_S,
    TRANSFERS,
    Pace,
    Remaining,
    Speed,
    UploadSlots,
)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


async def test_each_transfer_pays_for_its_bytes_before_the_next_one(clock: VirtualClock) -> None:
    pace = Pace(clock, 100.0)
    times = []
    for _ in range(4):
        await pace.spend(50)
        times.append(clock.monotonic())
    assert times == [0.0, 0.5, 1.0, 1.5]


async def test_time_without_transfers_is_not_saved_up_for_a_burst(clock: VirtualClock) -> None:
    pace = Pace(clock, 100.0)
    await clock.advance(1000.0)
    await pace.spend(100)
    await pace.spend(100)
    assert clock.monotonic() == 1001.0


async def test_concurrent_transfers_share_one_rate(clock: VirtualClock) -> None:
    pace = Pace(clock, 100.0)
    await asyncio.gather(*(pace.spend(100) for _ in range(5)))
    assert clock.monotonic() == 4.0


async def test_without_a_rate_nothing_waits(clock: VirtualClock) -> None:
    await Pace(clock, None).spend(10**12)
    assert clock.monotonic() == 0.0


def test_files_share_the_time_that_is_left_and_a_late_table_waits_no_more() -> None:
    remaining = Remaining(finish_by=10.0, files=4, bytes=0)
    assert remaining.patience(now=6.0, seconds=2.0) == 0.5
    assert remaining.patience(now=8.0, seconds=2.0) == 0.0
    assert remaining.patience(now=99.0, seconds=0.0) == 0.0
    assert remaining.patience(now=-1000.0, seconds=0.0) == PATIENCE_S


def test_small_transfers_tell_the_latency_and_large_ones_the_speed() -> None:
    speed = Speed()
    for _ in range(30):
        speed.observed(1000, 0.2)
        speed.observed(10_000_000, 1.2)
    assert abs(speed.seconds(5_000_000) - 0.7) < 0.01
    assert abs(speed.seconds(0, transfers=3) - 0.6) < 0.01


async def test_a_lane_holds_few_files_and_few_bytes_in_the_order_they_came() -> None:
    clock = VirtualClock(auto=False)
    upload_slots = UploadSlots(clock)
    inside: list[int] = []

    async def transfer(number: int, size: int) -> None:
        async with upload_slots.slot(size, None):
            inside.append(number)
            await clock.sleep(1.0)
            inside.remove(number)

    sizes = [1] * (TRANSFERS + 1) + [2 * HELD_BYTES, 1]
    each = [asyncio.ensure_future(transfer(*item)) for item in enumerate(sizes)]
    seen = []
    for _ in range(4):
        await clock.advance(0.5)
        seen.append(sorted(inside))
        await clock.advance(0.5)
    first = list(range(TRANSFERS))
    assert seen == [first, [TRANSFERS], [TRANSFERS + 1], [TRANSFERS + 2]]
    await asyncio.gather(*each)
    assert upload_slots.link.held_bytes == 0


async def test_a_place_is_free_again_when_its_transfer_fails_or_is_cancelled(
    clock: VirtualClock,
) -> None:
    upload_slots = UploadSlots(clock)
    for _ in range(2 * TRANSFERS):
        with contextlib.suppress(OSError):
            async with upload_slots.slot(1, None):
                raise OSError("the store is away")
    holding = [upload_slots.slot(HELD_BYTES, None) for _ in range(2)]
    await holding[0].__aenter__()
    waiting = asyncio.ensure_future(holding[1].__aenter__())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await holding[0].__aexit__(None, None, None)
    async with upload_slots.slot(HELD_BYTES, None):
        assert upload_slots.link.held_bytes == HELD_BYTES
