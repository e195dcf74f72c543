"""Supervision: loops that run side by side, where the first failure stops all.

Invariant: whatever ends it, nothing that was started is left running.
"""

import asyncio
import contextlib
import logging
import sys
from collections.abc import Coroutine, Iterable
from typing import Any

from tidelog.errors import TidelogError
from tidelog.events import Event

logger = logging.getLogger(__name__)

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
        first = sys.exception()
        with contextlib.suppress(asyncio.CancelledError, TidelogError):
            for ended in await asyncio.gather(*running, return_exceptions=True):
                if isinstance(ended, Exception) and ended is not first:
                    Event.FURTHER_FAILURE.log(logger, error=ended)
