"""Many requests, so many at a time.

Invariant: when one fails its error is raised and no other is left running.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

CONCURRENCY: Final = 16

Progress = Callable[[int, int], None]
"""Called with (done, total) after each step."""


def no_progress(done: int, total: int) -> None:
    """For callers that show none."""


async def gather_bounded(
    items: Iterable[T],
    work: Callable[[T], Awaitable[R]],
    progress: Progress = no_progress,
    concurrency: int = CONCURRENCY,
) -> dict[T, R]:
    """The answer of `work` for every item; raises the first error of any."""
    todo = list(items)
    waiting = iter(todo)
    done: dict[T, R] = {}

    async def worker() -> None:
        for item in waiting:
            done[item] = await work(item)
            progress(len(done), len(todo))

    workers = [asyncio.ensure_future(worker()) for _ in range(min(concurrency, len(todo)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for each in workers:
            each.cancel()
    return {item: done[item] for item in todo}
