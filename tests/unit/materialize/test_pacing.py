"""Table uploads keep to their share of the bandwidth, and get it."""

import asyncio
import contextlib

import pytest

from tests.support.clock import VirtualClock
from tidelog.materialize.pacing import (
    HELD_BYTES,
    TRANSFERS,
    Pace,
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
