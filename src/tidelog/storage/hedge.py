"""One attempt at a call, with a second one beside it when the first is slow.

Invariants: every task started here has ended when the function returns or raises; the first
answer wins, and only "unreachable" is no answer while another try is still under way.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from tidelog.concurrency import discard
from tidelog.effects import Clock
from tidelog.errors import StoreUnreachableError
from tidelog.events import Event
from tidelog.storage.port import OperationMetrics

logger = logging.getLogger(__name__)

T = TypeVar("T")


async def first_answer(
    clock: Clock,
    send: Callable[[], Awaitable[T]],
    counters: OperationMetrics,
    name: str,
    *,
    count: int = 1,
    timeout_s: float,
    hedge_after_s: float | None,
) -> T:
    """Answer of `send()`, or of a second `send()` started after `hedge_after_s` seconds.

    Raises what the winning try raised, or TimeoutError when neither answers in `timeout_s` seconds.
    Tries are counted in `counters`, as `count` each; `name` is the object asked for, in the log.
    """
    counters.attempts += count
    first: asyncio.Future[T] = asyncio.ensure_future(send())
    tries = [first]
    try:
        rest_s = timeout_s
        if hedge_after_s is not None and hedge_after_s < timeout_s:
            rest_s -= hedge_after_s
            if not await _answered(tries, clock, hedge_after_s):
                counters.attempts += count
                counters.hedges += count
                Event.REQUEST_HEDGED.log(logger, object=name, after_s=hedge_after_s)
                tries.append(asyncio.ensure_future(send()))
        if not await _answered(tries, clock, rest_s):
            raise TimeoutError
        winner = next((task for task in tries if _is_answer(task)), first)
        if winner is not first:
            counters.hedge_wins += count
        return winner.result()
    finally:
        await discard(tries)


async def _answered(tries: Sequence[asyncio.Future[Any]], clock: Clock, seconds: float) -> bool:
    """True once a try answered or all failed, False when the time was over before."""
    timer: asyncio.Future[Any] = asyncio.ensure_future(clock.sleep(seconds))
    try:
        while not (any(map(_is_answer, tries)) or all(task.done() for task in tries)):
            if timer.done():
                return False
            waiting = [task for task in (*tries, timer) if not task.done()]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        return True
    finally:
        await discard([timer])


def _is_answer(task: asyncio.Future[Any]) -> bool:
    if not task.done():
        return False
    return task.cancelled() or not isinstance(task.exception(), StoreUnreachableError)
