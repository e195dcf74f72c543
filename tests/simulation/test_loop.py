"""The virtual loop: time jumps, order is seeded, a standstill is noticed."""

import asyncio
from random import Random

import pytest

from tests.simulator.machine.loop import (
    EndlessError,
    StandstillError,
    VirtualLoop,
    run_virtual,
    waiting,
)


def test_time_jumps_to_the_next_timer_and_stands_still_in_between() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        times = [loop.time()]
        for _ in range(1000):
            await asyncio.sleep(0)
        times.append(loop.time())
        await asyncio.gather(asyncio.sleep(3600), asyncio.sleep(10))
        times.append(loop.time())
        return times

    assert run_virtual(main(), VirtualLoop()) == [0.0, 0.0, 3600.0]


def test_a_program_that_waits_for_itself_is_at_a_standstill() -> None:
    seen: list[str] = []

    async def first(event: asyncio.Event) -> None:
        await event.wait()

    async def main() -> None:
        await asyncio.gather(first(asyncio.Event()), first(asyncio.Event()))

    loop = VirtualLoop()
    with pytest.raises(StandstillError):
        try:
            loop.run_until_complete(main())
        finally:
            seen += waiting(loop)
    assert sum("first:" in line and "Event.wait:" in line for line in seen) == 2


def test_a_program_that_gets_nowhere_is_ended() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(EndlessError):
        run_virtual(main(), VirtualLoop(rounds=1000))


def order_of_steps(seed: int | None) -> list[int]:
    steps: list[int] = []

    async def step(number: int) -> None:
        for _ in range(3):
            steps.append(number)
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*map(step, range(5)))

    run_virtual(main(), VirtualLoop(None if seed is None else Random(seed)))
    return steps


def test_ready_tasks_run_in_their_order_or_in_a_seeded_one() -> None:
    assert order_of_steps(None) == [*range(5)] * 3
    assert order_of_steps(1) == order_of_steps(1)
    assert len({tuple(order_of_steps(seed)) for seed in range(10)}) > 5
    assert sorted(order_of_steps(3)[:5]) == [*range(5)], "in each turn everyone has one step"


def test_what_a_callback_raises_goes_to_the_exception_handler_and_the_loop_goes_on() -> None:
    seen: list[BaseException] = []

    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    loop = VirtualLoop()
    loop.set_exception_handler(lambda _, context: seen.append(context["exception"]))
    run_virtual(main(), loop)
    assert [type(error) for error in seen] == [ZeroDivisionError]
