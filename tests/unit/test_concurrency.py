"""Coroutines side by side: bounded, in order, and over when one has failed."""

import asyncio

import pytest

from tidelog.concurrency import together


def test_results_keep_their_order_and_no_more_than_allowed_run_at_once() -> None:
    running, most = 0, 0

    async def request(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5 - number % 5):
            await asyncio.sleep(0)
        running -= 1
        return number

    found = asyncio.run(together((request(number) for number in range(20)), 4))
    assert found == list(range(20))
    assert most == 4


def test_when_one_fails_all_others_have_ended_before_its_error_is_raised() -> None:
    begun: list[int] = []
    ended: list[int] = []

    async def request(number: int) -> None:
        begun.append(number)
        try:
            if number == 2:
                raise OSError("gone")
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    async def all_of_them() -> None:
        with pytest.raises(OSError, match="gone"):
            await together((request(number) for number in range(6)), 3)
        assert len(begun) < 6
        assert sorted(ended) == sorted(begun)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(all_of_them())
