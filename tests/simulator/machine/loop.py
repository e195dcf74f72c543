"""An event loop in virtual time: asyncio's own tasks and futures, no threads, no sockets.

Invariants: the same program on a loop with the same seed takes the same steps: nothing depends on
the machine's clock, on addresses or on the hash seed; time stands still while anything is ready
and then jumps to the next timer. Ready tasks may be stepped in a seeded order, everything else
keeps asyncio's first-in first-out order.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from itertools import count
from random import Random
from typing import Any, Final, Protocol, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
ForeachSink = Callable[[*Ts], object]

_ROUNDS: Final = 400_000
"""Turns of a loop after which a run counts as endless."""

_LEAST_S: Final = 1e-6
"""The shortest time that passes."""


class Suspendable(Protocol):
    """Whose a part of the program is: it may be held, as a process is by SIGSTOP."""

    def held_until(self, now: float) -> float:
        """Asked before each step; a moment to come holds this step and all later ones."""
        ...


OWNER: ContextVar[Suspendable | None] = ContextVar("OWNER", default=None)
"""Whose the running step is; what it starts inherits it."""


class StandstillError(Exception):
    """Nothing is ready, no timer runs, and the program is not done: it would wait for ever."""


class EndlessError(Exception):
    """The program keeps taking steps and gets nowhere."""


class _Future(asyncio.Future[Any]):
    """A future that sets order by age, not by address."""

    __slots__ = ("_age",)

    _age: int

    def __hash__(self) -> int:
        return self._age


class _Task(asyncio.Task[Any]):
    """A task that sets order by age, not by address."""

    __slots__ = ("_age",)

    def __init__(
        self, coro: Any, *, loop: "VirtualLoop", name: Any, context: Context | None
    ) -> None:
        # Before the base class: it puts the task into a set.
        self._age = loop.next_age()
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self._age


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs one program; `order` steps ready tasks in a random order, without it in theirs."""

    # Of the base class, which declares none of them.
    _ready: deque[Any]
    _scheduled: list[asyncio.TimerHandle]
    _stopping: bool

    def __init__(
        self, order: Random | None = None, rounds: int = _ROUNDS, began: float = 0.0
    ) -> None:
        super().__init__()
        self._now = began
        self.next_age: Callable[[], int] = count().__next__
        """A number for a new future or task."""
        self._order = order
        self._rounds_left = rounds
        self._held: dict[Suspendable, list[asyncio.Handle]] = {}
        """Steps of owners that are held, in their order."""

    def time(self) -> float:
        return self._now

    def call_at(
        self, when: float, callback: ForeachSink[*Ts], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        # A delay that is lost in rounding must still let time go on.
        return super().call_at(max(when, self._now + _LEAST_S), callback, *args, context=context)

    def create_task(
        self, coro: Any, *, name: object = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        return _Task(coro, loop=self, name=name, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        future = _Future(loop=self)
        # Not in a constructor: that of the base class is C, and a run makes thousands of futures.
        future._age = self.next_age()
        return future

    def _run_once(self) -> None:
        """One turn: jump to the next timer when nothing is ready, then run what is ready."""
        self._rounds_left -= 1
        if self._rounds_left < 0:
            raise EndlessError("the simulation takes step after step and does not end")
        ready, timers = self._ready, self._scheduled
        while timers and timers[0].cancelled():
            heapq.heappop(timers)
        if not ready and not self._stopping:
            if not timers:
                raise StandstillError("every task waits for another one")
            self._now = max(self._now, timers[0].when())
        now = self._now
        while timers and timers[0].when() <= now:
            ready.append(heapq.heappop(timers))
        if self._order is not None and len(ready) > 1:
            self._shuffle(self._order)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            owner = handle._context.get(OWNER)
            if owner is not None and (until := owner.held_until(now)) > now:
                self._hold(owner, handle, until)
            else:
                handle._run()

    def resume(self, owner: Suspendable) -> None:
        """Let what was held go on."""
        self._ready.extend(self._held.pop(owner, ()))

    def _hold(self, owner: Suspendable, handle: asyncio.Handle, until: float) -> None:
        if owner not in self._held:
            self._held[owner] = []
            self.call_at(until, self.resume, owner, context=Context())
        self._held[owner].append(handle)

    def _shuffle(self, order: Random) -> None:
        """Step the ready tasks in another order; callbacks keep their places."""
        # What steps a task is bound to it.
        steps = [
            at
            for at, handle in enumerate(self._ready)
            if isinstance(getattr(handle._callback, "__self__", None), asyncio.Task)
        ]
        moved = [self._ready[at] for at in steps]
        order.shuffle(moved)
        for at, handle in zip(steps, moved, strict=True):
            self._ready[at] = handle

    def _process_events(self, event_list: Any) -> None:
        """There are no events but timers."""

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector that would have to be woken."""


def run_virtual(main: Coroutine[Any, Any, T], loop: VirtualLoop) -> T:
    """Run a program to its end; what it leaves behind is cancelled.

    Raises StandstillError, EndlessError, and what the program raises.
    """
    try:
        return loop.run_until_complete(main)
    finally:
        loop._rounds_left = _ROUNDS
        left = sorted(asyncio.all_tasks(loop), key=hash)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def waiting(loop: asyncio.AbstractEventLoop) -> list[str]:
    """What every unfinished task of a loop waits for: the functions it stands in, outermost first.

    Oldest task first.
    """
    return [_stack(task) for task in sorted(asyncio.all_tasks(loop), key=hash)]


def _stack(task: "asyncio.Task[Any]") -> str:
    names = []
    coroutine: Any = task.get_coro()
    while coroutine is not None:
        if (frame := getattr(coroutine, "cr_frame", None)) is not None:
            names.append(f"{coroutine.__qualname__}:{frame.f_lineno}")
        coroutine = getattr(coroutine, "cr_await", None)
    return " > ".join(names)
