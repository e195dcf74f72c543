"""The outside world as injected ports: clock, randomness, threads.

Invariant: no other module reads a clock, draws a random number, sleeps or starts a thread;
a lint rule says so. Whoever holds an `Effects` can be run in virtual time by the simulator.
"""

import asyncio
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Clock(Protocol):
    """Wall time for people and state TTL, monotonic time for durations, sleeping."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class Offload(Protocol):
    """Runs blocking or CPU-heavy functions away from the event loop."""

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...

    def close(self) -> None: ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ThreadOffload:
    """A small thread pool; the functions given to it release the GIL or block on I/O."""

    def __init__(self, threads: int = 4) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="tidelog")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def call() -> T:
            try:
                return function(*args, **kwargs)
            except StopIteration as error:
                # A future cannot hold a StopIteration: its waiter would never wake.
                raise RuntimeError("the function raised StopIteration") from error

        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


def loop_thread() -> asyncio.AbstractEventLoop:
    """An event loop that runs on a thread of its own, until it is stopped or the process ends."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="tidelog-loop", daemon=True).start()
    return loop


def hold_thread(seconds: float) -> None:
    """Keep the calling thread for so long, as a slow call into another system does."""
    time.sleep(seconds)


class InlineOffload:
    """Runs the function at once, in the event loop: deterministic, for tests and simulation."""

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return function(*args, **kwargs)

    def close(self) -> None:
        """Nothing to release."""


async def wait_for(event: asyncio.Event, clock: Clock, seconds: float | None) -> None:
    """Wait until `event` is set or the time has passed; None waits for the event alone."""
    waits = [asyncio.ensure_future(event.wait())]
    if seconds is not None:
        waits.append(asyncio.ensure_future(_slept(clock, seconds)))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def _slept(clock: Clock, seconds: float) -> Literal[True]:
    await clock.sleep(seconds)
    return True


@dataclass(frozen=True, slots=True)
class Effects:
    """What a running job needs of the outside world besides its object store."""

    clock: Clock = field(default_factory=SystemClock)
    rng: random.Random = field(default_factory=random.SystemRandom)
    offload: Offload = field(default_factory=ThreadOffload)

    def token(self) -> str:
        """A fresh 16-hex-digit name for an attempt or author."""
        return f"{self.rng.getrandbits(64):016x}"
