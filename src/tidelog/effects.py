"""The outside world as injected ports: clock, randomness, threads; and the user's cache.

Invariant: no other module reads a clock, draws a random number, sleeps or starts a thread;
a lint rule says so. What holds an `Effects` can be run in virtual time by the simulator.
"""

import asyncio
import os
import random
import selectors
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar, Final, ParamSpec, Protocol, TypeVar, cast

from tidelog.concurrency import Interruption, answer_of, to_end
from tidelog.interrupt import ended, flush_streams

P = ParamSpec("P")
T = TypeVar("T")

CACHE_VARIABLE: Final = "TIDELOG_CACHE"

_ASIDE_THREADS: Final = 8
_LEAVE_S: Final = 2.0
"""How long a process that ends waits for the threads of its pools."""


class Clock(Protocol):
    """Wall time for people and state TTL, monotonic time for durations, sleeping."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    def hand_over(self, seconds: float) -> None:
        """Stop the event loop for so long, in which threads get the interpreter's lock."""
        ...


class Offload(Protocol):
    """Runs blocking or CPU-heavy functions away from the event loop."""

    working: int
    """Functions given to `run` that have not ended yet."""

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...

    async def run_to_end(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Like `run`, but a caller that is cancelled waits until the function has ended.

        For what must not go on behind the back of an owner who is about to close what it works on.
        """
        ...

    async def wait(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Like `run`, for a function that may wait for others without end: it holds up nobody."""
        ...

    def close(self, *, wait: bool = True) -> None: ...


class SystemClock:
    """The machine's clocks."""

    hand_over_s: ClassVar = 1e-6
    """A busy event loop sleeps so long where it gives way to others.

    Threads that wait for the interpreter's lock would get it once in a hundred milliseconds
    otherwise: an event loop lets go of it for a moment in each round and takes it again before they
    wake up, and each such moment sets back the time after which they may demand it
    (`sys.setswitchinterval`). The system sleeps for some 60 microseconds at least, which is enough
    for them.
    """

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0 and self.hand_over_s > 0:
            self.hand_over(self.hand_over_s)
        await asyncio.sleep(seconds)

    def hand_over(self, seconds: float) -> None:
        time.sleep(seconds)


_WorkQueue = SimpleQueue[Callable[[], None] | None]
"""What a thread is to do, one after the other; None: it ends."""


class ThreadOffload:
    """A small thread pool; the functions given to it release the GIL or block on I/O.

    What may wait for long gets threads of its own, as many as wait at the same time. All threads
    end at `close`, or when nothing has the `ThreadOffload` any more.
    """

    def __init__(self, threads: int = 4) -> None:
        self.working = 0
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="tidelog")
        self._idle: list[_WorkQueue] = []
        """Waiting threads without work, by what they take it from."""
        weakref.finalize(self, _end_threads, self._idle).atexit = False
        self._closed = False

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        interruption = Interruption()
        future = self._begun(interruption.within(partial(function, *args, **kwargs)))
        future.add_done_callback(interruption.follow)
        return await future

    async def run_to_end(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        interruption = Interruption()
        future = self._begun(interruption.within(partial(function, *args, **kwargs)))
        return await to_end(future, interruption.cancel)

    def _begun(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """No task, for the end of a loop cancels all of these."""
        loop, safe = asyncio.get_running_loop(), _without_stop_iteration(call)
        try:
            future = loop.run_in_executor(self._pool, safe)
        except RuntimeError:
            if self._closed:
                raise
            future = self._begun_late(safe)
        self.working += 1
        future.add_done_callback(self._ended)
        return future

    def _begun_late(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Python ends all pools with its main thread, after which other threads may go on."""
        try:
            return self._apart(call)
        except RuntimeError:  # nor does it start threads, once `atexit` calls its functions
            done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            _settle(done, *_outcome(call))
            return done

    def _ended(self, _: object) -> None:
        self.working -= 1

    async def wait(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        interruption = Interruption()
        call = _without_stop_iteration(partial(function, *args, **kwargs))
        future = self._apart(interruption.within(call))
        future.add_done_callback(interruption.follow)
        return await future

    def _apart(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Begin it in a thread that nothing else waits for."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            outcome = _outcome(call)
            with suppress(RuntimeError):  # the loop was closed in the meantime
                loop.call_soon_threadsafe(_settle, answer, *outcome)

        (self._idle.pop() if self._idle else self._start()).put(work)
        return answer

    def _start(self) -> _WorkQueue:
        """One more thread. A daemon: the process ends without one that waits for ever."""
        queue: _WorkQueue = SimpleQueue()
        daemon_thread(partial(_work_from, queue, weakref.ref(self)), "tidelog-waiting")
        return queue

    def close(self, *, wait: bool = True) -> None:
        """End the threads; without `wait` what is under way ends later, or with the process."""
        self._closed = True
        _end_threads(self._idle)
        self._pool.shutdown(wait=wait, cancel_futures=True)


def _work_from(queue: _WorkQueue, owner: "weakref.ref[ThreadOffload]") -> None:
    """The life of a thread; while it is idle it keeps nothing alive that it worked for."""
    while (work := queue.get()) is not None:
        work()
        del work
        offload = owner()
        if offload is None:
            return
        offload._idle.append(queue)
        del offload


def _end_threads(idle: list[_WorkQueue]) -> None:
    while idle:
        idle.pop().put(None)


def _without_stop_iteration(function: Callable[[], T]) -> Callable[[], T]:
    def call() -> T:
        try:
            return function()
        except StopIteration as error:
            # A future cannot hold a StopIteration: its waiter would never wake.
            raise RuntimeError("the function raised StopIteration") from error

    return call


def _outcome(call: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return call(), None
    except Exception as error:
        return None, error


def _settle(answer: asyncio.Future[T], result: T | None, error: Exception | None) -> None:
    if answer.done():
        return  # nobody waits any more
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(cast(T, result))


def loop_thread(
    selector: selectors.BaseSelector | None = None,
    around: AbstractContextManager[object] | None = None,
) -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    """An event loop, and the thread of its own that it runs on until it is stopped or the process
    ends: it waits with `selector`, and the whole of it runs within `around`.
    """
    loop = asyncio.SelectorEventLoop(selector) if selector else asyncio.new_event_loop()

    def run() -> None:
        with around or nullcontext():
            loop.run_forever()
            # What an interrupted program has left behind ends here, and is not complained about.
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            while tasks:  # also what they begin to release what they have
                loop.run_until_complete(asyncio.wait(tasks))
                tasks = asyncio.all_tasks(loop)
            loop.close()

    return loop, daemon_thread(run, "tidelog-loop")


class Aside(Protocol):
    """Runs coroutines for a thread that cannot wait for its own event loop."""

    @property
    def effects(self) -> "Effects":
        """With what such coroutines run."""
        ...

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], seconds: float) -> T:
        """What `work` returns or raises; cancels it after so long, and raises TimeoutError."""
        ...

    async def go(self, work: Callable[["Effects"], Coroutine[Any, Any, T]]) -> T:
        """What `work` returns or raises, with the effects of where it runs."""
        ...

    def close(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Do what is `last`, where anything was done, and end."""
        ...


class LoopAside:
    """An event loop on a thread of its own, which begins with the first call."""

    def __init__(self, effects: "Effects") -> None:
        # Functions of the caller's threads may wait for this one.
        self.effects = replace(effects, offload=ThreadOffload(_ASIDE_THREADS))
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], seconds: float) -> T:
        return answer_of(self._begin(work()), seconds, self.effects.clock.monotonic)

    async def go(self, work: Callable[["Effects"], Coroutine[Any, Any, T]]) -> T:
        return await asyncio.wrap_future(self._begin(work(self.effects)))

    def _begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        with self._starting:
            if self._loop is None:
                self._loop, _ = loop_thread()
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """End the thread when it has done what is `last`; what is under way is cancelled."""
        with self._starting:
            loop, self._loop = self._loop, None
        if loop is not None:

            async def end() -> None:
                try:
                    if last is not None:
                        await asyncio.wait_for(last(), _LEAVE_S)
                finally:
                    loop.stop()
                    self.effects.offload.close(wait=False)

            asyncio.run_coroutine_threadsafe(end(), loop)


def daemon_thread(work: Callable[[], None], name: str) -> threading.Thread:
    """A thread that does this work; the process ends without waiting for it."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


def end_soon(code: int) -> None:
    """Let the process end with this code, in two seconds if it has not ended by then.

    Python waits for the threads of pools, and a request that nobody waits for any more may take a
    minute.
    """

    ended(code)

    def end() -> None:
        time.sleep(_LEAVE_S)
        flush_streams()
        os._exit(code)

    daemon_thread(end, "tidelog-end")


def hold_thread(seconds: float) -> None:
    """Keep the calling thread for so long, as a slow call into another system does."""
    time.sleep(seconds)


class InlineOffload:
    """Runs the function at once, in the event loop: deterministic, for tests and simulation."""

    working = 0

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return function(*args, **kwargs)

    async def run_to_end(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(function, *args, **kwargs)

    async def wait(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return function(*args, **kwargs)

    def close(self, *, wait: bool = True) -> None:
        """Nothing to release."""


async def wait_for(event: asyncio.Event, clock: Clock, seconds: float | None) -> None:
    """Wait until `event` is set or the time has passed; None waits for the event alone."""
    waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(event.wait())]
    if seconds is not None:
        waits.append(asyncio.ensure_future(clock.sleep(seconds)))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


@dataclass(frozen=True, slots=True)
class Effects:
    """What a running job needs of the outside world besides its object store."""

    clock: Clock = field(default_factory=SystemClock)
    rng: random.Random = field(default_factory=random.SystemRandom)
    offload: Offload = field(default_factory=ThreadOffload)
    aside: Callable[["Effects"], Aside] = LoopAside
    """Makes what waits for a coroutine where the event loop cannot."""
    frees_memory: bool = True
    """A job that ends frees its rows; not where the process ends with it, which costs nothing."""

    def token(self) -> str:
        """A fresh 16-hex-digit name for an attempt or author."""
        return f"{self.rng.getrandbits(64):016x}"


def cache_directory() -> Path:
    """For what can be made again: $TIDELOG_CACHE, else `tidelog` in the user's cache."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).absolute()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "tidelog"
