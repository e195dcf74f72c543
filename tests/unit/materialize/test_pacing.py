"""Table uploads keep to their share of the bandwidth."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.support.clock import VirtualClock
from tidelog.materialize.pacing import Pace


def scenario(steps: Callable[[VirtualClock], Awaitable[None]]) -> None:
    asyncio.run(steps(VirtualClock()))


def test_each_transfer_pays_for_its_bytes_before_the_next_one() -> None:
    async def steps(clock: VirtualClock) -> None:
        pace = Pace(clock, 100.0)
        times = []
        for _ in range(4):
            await pace.spend(50)
            times.append(clock.monotonic())
        assert times == [0.0, 0.5, 1.0, 1.5]

    scenario(steps)


def test_time_without_transfers_is_not_saved_up_for_a_burst() -> None:
    async def steps(clock: VirtualClock) -> None:
        pace = Pace(clock, 100.0)
        await clock.advance(1000.0)
        await pace.spend(100)
        await pace.spend(100)
        assert clock.monotonic() == 1001.0

    scenario(steps)


def test_concurrent_transfers_share_one_rate() -> None:
    async def steps(clock: VirtualClock) -> None:
        pace = Pace(clock, 100.0)
        await asyncio.gather(*(pace.spend(100) for _ in range(5)))
        assert clock.monotonic() == 4.0

    scenario(steps)


def test_without_a_rate_nothing_waits() -> None:
    async def steps(clock: VirtualClock) -> None:
        await Pace(clock, None).spend(10**12)
        assert clock.monotonic() == 0.0

    scenario(steps)
