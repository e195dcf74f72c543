"""The virtual loop notices what comes to a standstill, gets nowhere or raises."""

import asyncio

import pytest

from tests.simulator.machine.loop import (
    EndlessError,
    StandstillError,
    VirtualLoop,
    run_virtual,
    waiting,
)


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


def test_what_a_callback_raises_goes_to_the_exception_handler_and_the_loop_goes_on() -> None:
    seen: list[BaseException] = []

    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    loop = VirtualLoop()
    loop.set_exception_handler(lambda _, context: seen.append(context["exception"]))
    run_virtual(main(), loop)
    assert [type(error) for error in seen] == [ZeroDivisionError]
