"""Supervision: loops that run side by side, where the first failure stops all.

Invariant: whatever ends it, nothing that was started is left running.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable
from typing import Any

from tidelog.errors import TidelogError

Loop = Coroutine[Any, Any, None]


async def run_until_done(main: Iterable[Loop], services: Iterable[Loop]) -> None:
    """Run all until the main ones ended; raises the first error of any."""
    # Lists, not sets: in a simulation equal runs take equal steps.
    needed = [asyncio.ensure_future(loop) for loop in main]
    running = needed + [asyncio.ensure_future(loop) for loop in services]
    try:
        while not all(task.done() for task in needed):
            waiting = [task for task in running if not task.done()]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in running:
                if task.done():
                    task.result()
    finally:
        for task in running:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError, TidelogError):
            await asyncio.gather(*running, return_exceptions=True)


async def run_while(main: Loop, service: Loop) -> None:
    """Run both until the main one ends; raises the first error of either."""
    await run_until_done([main], [service])
