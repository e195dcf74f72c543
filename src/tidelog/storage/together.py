"""Several requests at once.

Invariant: when one fails the others have ended before its error is raised, so nothing goes on
behind the caller's back.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final, TypeVar

T = TypeVar("T")

AT_ONCE: Final = 16
"""Requests of small objects; a store answers them side by side."""


async def together(work: Iterable[Coroutine[Any, Any, T]], at_once: int | None = None) -> list[T]:
    """The results of all, in their order, at most `at_once` of them running."""
    coroutines = list(work)
    permits = asyncio.Semaphore(at_once or max(1, len(coroutines)))
    running = [asyncio.ensure_future(_permitted(each, permits)) for each in coroutines]
    try:
        return await asyncio.gather(*running)
    except BaseException:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        # Python complains of those that never began, unless they are closed.
        for coroutine in coroutines:
            coroutine.close()
        raise


async def _permitted(work: Coroutine[Any, Any, T], permits: asyncio.Semaphore) -> T:
    async with permits:
        return await work
