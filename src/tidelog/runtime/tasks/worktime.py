"""How long a task works, and how long it waits because of back-pressure.

Invariant: a moment counts as work or as waiting, never as both.
"""

import logging
from collections.abc import Callable
from typing import Final

from tidelog.effects import Clock
from tidelog.events import Event
from tidelog.runtime.operators.turn import Turn

LONG_CALL_S: Final = 0.2
"""A call that holds the event loop for so long is reported."""

HAND_OVER_S: Final = 0.0003
"""While threads work for a checkpoint the event loop lets them for so long in each turn. They need
the interpreter's lock after every call of the system, some ten for an object that is written, and
would get it once a turn otherwise."""

logger = logging.getLogger(__name__)


class LongCalls:
    """Warns of operators whose functions hold the event loop, once each, in all their subtasks."""

    def __init__(self) -> None:
        self._warned: set[str] = set()

    def took(self, operator: str, seconds: float) -> None:
        """A call took at least `LONG_CALL_S`."""
        if operator in self._warned:
            return
        self._warned.add(operator)
        Event.LONG_CALL.log(logger, operator=operator, milliseconds=seconds * 1000)


class WorkTime:
    """The stopwatch of one task; seconds since the start, spans that ended."""

    def __init__(
        self,
        clock: Clock,
        calls: LongCalls | None = None,
        urgent: Callable[[], bool] = bool,
        threads_work: Callable[[], int] = int,
    ) -> None:
        self.clock = clock
        self.turn = Turn(clock.monotonic, urgent)
        """The present turn of the task; turns are short while something is `urgent`."""
        self._threads_work = threads_work
        self._calls = calls if calls is not None else LongCalls()
        self.longest_call_s = 0.0
        """The longest time in which an operator held the event loop."""
        self.busy_s = 0.0
        self.backpressured_s = 0.0

    def called(self, operator: str, seconds: float) -> None:
        """An operator of the task held the event loop for so long."""
        self.longest_call_s = max(self.longest_call_s, seconds)
        if seconds >= LONG_CALL_S:
            self._calls.took(operator, seconds)

    async def rest(self) -> None:
        """Let uploads and other tasks have their turn; then a new one of this task begins."""
        if self._threads_work() and self.turn.short():
            self.clock.hand_over(HAND_OVER_S)
        await self.clock.sleep(0)
        self.turn.begin()

    def working(self) -> "_Working":
        """Count what is done within, without the waiting in it."""
        return _Working(self)

    def waiting(self) -> "_Waiting":
        """Count the time within as back-pressure; enter it only where the task really waits."""
        return _Waiting(self)


# Classes, because they are entered with every message: generators would cost twice as much.


class _Working:
    __slots__ = ("_since", "_waited", "_work")

    def __init__(self, work: WorkTime) -> None:
        self._work = work

    def __enter__(self) -> None:
        self._since, self._waited = self._work.clock.monotonic(), self._work.backpressured_s

    def __exit__(self, *_: object) -> None:
        work = self._work
        waited = work.backpressured_s - self._waited
        work.busy_s += work.clock.monotonic() - self._since - waited


class _Waiting:
    __slots__ = ("_since", "_work")

    def __init__(self, work: WorkTime) -> None:
        self._work = work

    def __enter__(self) -> None:
        self._since = self._work.clock.monotonic()

    def __exit__(self, *_: object) -> None:
        self._work.backpressured_s += self._work.clock.monotonic() - self._since
        self._work.turn.begin()  # others have run
