"""Coroutines that run side by side, a bounded number at a time, and tasks that many wait for.

Invariants: when one fails, or the caller is cancelled, all others have ended before the error is
raised, so nothing goes on that nobody waits for. A shared task goes on for the others when one
caller gives up, until `SharedTasks.close`.
"""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from select import select
from typing import Any, ClassVar, Final, Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE: Final = 16
"""Requests for small objects; a store answers them side by side."""

Progress = Callable[[int, int], None]
"""Called with (done, total) after each step."""


def no_progress(done: int, total: int) -> None:
    """For callers that show none."""


class LiveObjects(Generic[T]):
    """Objects that others own, as long as they exist; any thread adds some while another looks
    through them, which a `WeakSet` answers with an error.
    """

    def __init__(self) -> None:
        self._objects: WeakKeyDictionary[T, None] = WeakKeyDictionary()

    def add(self, each: T) -> None:
        self._objects[each] = None

    def discard(self, each: T) -> None:
        self._objects.pop(each, None)

    def __iter__(self) -> Iterator[T]:
        """The objects that exist now."""
        # `keyrefs` copies without giving way to other threads.
        return (each for ref in self._objects.keyrefs() if (each := ref()) is not None)


async def together(work: Iterable[Coroutine[Any, Any, T]], at_once: int | None = None) -> list[T]:
    """The results of all coroutines, in their order, at most `at_once` of them running.

    None: all at once. Raises the first error of any.
    """
    coroutines = list(work)
    permits = asyncio.Semaphore(at_once or max(1, len(coroutines)))
    running = [_begun(coroutine, permits) for coroutine in coroutines]
    try:
        return await asyncio.gather(*running)
    except BaseException:
        await discard(running)
        raise


async def in_time(work: Iterable[Coroutine[Any, Any, T]], seconds: float | None) -> list[T | None]:
    """The results of all coroutines, in their order; None for what has not ended after so many
    seconds, and is cancelled. Raises the first error of any.
    """
    running = list(map(asyncio.ensure_future, work))
    try:
        if running:
            await asyncio.wait(running, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        return [task.result() if task.done() else None for task in running]
    finally:
        await discard(running)


async def discard(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel what still runs of these, and wait until it has ended, with or without an error."""
    pending = list(tasks)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)


async def to_end(work: Awaitable[T], interrupt: Callable[[], None] = lambda: None) -> T:
    """Await it, and its end even when cancelled, however often; `interrupt` is called then."""
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        interrupt()
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # of a call that was interrupted: nobody asks for it any more
        raise


class SharedTasks:
    """Tasks whose results several callers wait for."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin work that `wait` may be called for any number of times, also never."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def wait(self, task: asyncio.Task[T]) -> T:
        """The task's result; raises its error. A caller that is cancelled leaves it to the rest."""
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel what still runs, and wait until it has ended."""
        await discard(self._running)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            # Python complains of an error that nobody asked for: all who waited have given up.
            task.exception()


async def gather_bounded(
    items: Iterable[T],
    work: Callable[[T], Coroutine[Any, Any, R]],
    progress: Progress = no_progress,
    at_once: int = AT_ONCE,
) -> dict[T, R]:
    """The result of `work` for every item, as `together`."""
    todo = list(items)
    done = 0

    async def step(item: T) -> R:
        nonlocal done
        result = await work(item)
        done += 1
        progress(done, len(todo))
        return result

    return dict(zip(todo, await together(map(step, todo), at_once), strict=True))


def _begun(work: Coroutine[Any, Any, T], permits: asyncio.Semaphore) -> asyncio.Task[T]:
    task = asyncio.ensure_future(_permitted(work, permits))
    # Python complains of work that a cancelled task never began, unless it is closed.
    task.add_done_callback(lambda _: work.close())
    return task


async def _permitted(work: Coroutine[Any, Any, T], permits: asyncio.Semaphore) -> T:
    async with permits:
        return await work


class Interruption:
    """How a function in a thread learns that its caller was cancelled: one that waits for an answer
    from outside says with `interruptible` what ends its wait.
    """

    _current: ClassVar = threading.local()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stops: list[Callable[[], None]] = []
        self._cancelled = False

    def within(self, call: Callable[[], T]) -> Callable[[], T]:
        """The function, with this as its interruption."""

        def run() -> T:
            self._current.interruption = self
            try:
                return call()
            finally:
                self._current.interruption = None

        return run

    def cancel(self) -> None:
        """In the event loop: end what waits."""
        with self._lock:
            self._cancelled = True
            for stop in self._stops:
                stop()

    def follow(self, call: "asyncio.Future[Any]") -> None:
        """A caller that waits no more has cancelled its future."""
        if call.cancelled():
            self.cancel()

    @contextmanager
    def calling(self, stop: Callable[[], None]) -> Iterator[None]:
        with self._lock:
            self._stops.append(stop)
            if self._cancelled:
                stop()
        try:
            yield
        finally:
            with self._lock:
                self._stops.remove(stop)


def interruptible(stop: Callable[[], None]) -> AbstractContextManager[None]:
    """In a function that an `Offload` runs: `stop`, which is short, is called by another thread
    when the function's caller is cancelled meanwhile.
    """
    interruption = getattr(Interruption._current, "interruption", None)
    return nullcontext() if interruption is None else interruption.calling(stop)


_ENDING: Final = frozenset({signal.SIGINT, signal.SIGTERM})
_GRACE_S: Final = 2.0
"""How long a wait goes on after a signal that asks the process to end."""


def answer_of(answer: "Future[T]", seconds: float, now: Callable[[], float]) -> T:
    """The answer of another thread; raises its error, and TimeoutError after so many seconds.

    In the main thread a signal that asks the process to end shortens the wait: the event loop,
    which waits as well, could not take it before. Nobody gets an answer that comes later.
    """
    try:
        if threading.current_thread() is threading.main_thread():
            _wait_for_answer(answer, seconds, now)
            seconds = 0.0
        return answer.result(seconds)
    finally:
        answer.cancel()


def _wait_for_answer(answer: "Future[Any]", seconds: float, now: Callable[[], float]) -> None:
    """Return when there is an answer, when the time is over, or soon after such a signal."""
    reader, writer = socket.socketpair()
    for end in (reader, writer):
        end.setblocking(False)
    others = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    # Signals that come all the time, as a profiler's do, must not begin it anew.
    deadline = now() + seconds
    try:
        answer.add_done_callback(lambda _: _wake(writer))
        while not answer.done() and (left_s := deadline - now()) > 0:
            if not select([reader], [], [], left_s)[0]:
                return
            received = reader.recv(4096).replace(b"\0", b"")
            if received and others >= 0:
                os.write(others, received)
            if _ENDING.intersection(received):
                deadline = min(deadline, now() + _GRACE_S)
    finally:
        signal.set_wakeup_fd(others)
        reader.close()
        writer.close()


def _wake(writer: socket.socket) -> None:
    with suppress(OSError):  # nobody waits any more
        writer.send(b"\0")
