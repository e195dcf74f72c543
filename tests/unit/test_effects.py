"""The outside world as it is injected."""

import asyncio

import pytest

from tidelog.effects import ThreadOffload


def test_a_stop_iteration_in_a_thread_reaches_the_waiter() -> None:
    async def wait() -> None:
        await asyncio.wait_for(ThreadOffload(1).run(next, iter(())), timeout=30)

    with pytest.raises(RuntimeError, match="StopIteration"):
        asyncio.run(wait())
