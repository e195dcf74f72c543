"""Turns: how long a task goes on before other tasks of the process run.

Invariant: between two looks at the turn an operator does a bounded piece of work: a portion of
records, one timer, one buffer of output. So whatever a job does, nothing but a single call of a
user's function holds the event loop for much longer than a turn.

A checkpoint passes through the loop a dozen times, from the barrier to its manifest, and waits
for a turn of every task each time: while one is under way turns are short.
"""

import logging
from collections.abc import Callable
from typing import Final

from tidelog.effects import Clock
from tidelog.events import Event
from tidelog.runtime.channels.messages import Batch
from tidelog.runtime.operators.progress import Standstills

TURN_S: Final = 0.01
SHORTER: Final = 8
"""A turn is so many times shorter while a checkpoint is under way."""
OUTPUT_RECORDS: Final = 2048
"""Records of a buffer after which an operator cuts its own output."""
OUTPUT_BYTES: Final = 1 << 20
"""Bytes of a buffer after which an operator cuts its own output."""

PAUSE: Final = Batch([])
"""Yielded where the state is consistent with the outputs so far: a barrier may pass."""
REST: Final = Batch([])
"""Yielded where others may run and state may be flushed, but no barrier may pass."""


class Turn:
    """The present turn of a task, by the clock."""

    __slots__ = ("now", "short", "until")

    def __init__(self, now: Callable[[], float] = float, short: Callable[[], bool] = bool) -> None:
        self.now = now
        """Seconds; a clock that stands still never ends a turn."""
        self.short = short
        """Whether something urgent waits for the event loop."""
        self.begin()

    def begin(self) -> None:
        """Other tasks have run: a new turn begins."""
        self.until = self.now() + (TURN_S / SHORTER if self.short() else TURN_S)

    def ended(self) -> bool:
        """Whether to let other tasks run."""
        return self.now() >= self.until


LONG_CALL_S: Final = 0.2
"""A call that holds the event loop for so long is reported."""

HAND_OVER_S: Final = 0.0003
"""While threads work for a checkpoint the event loop lets them for so long in each turn. They need
the interpreter's lock after every call of the system, some ten for an object that is written, and
would get it once a turn otherwise."""

logger = logging.getLogger(__name__)


class WorkTime:
    """The stopwatch of one task; seconds since the start, spans that ended."""

    def __init__(
        self,
        clock: Clock,
        reported: set[str] | None = None,
        urgent: Callable[[], bool] = bool,
        threads_work: Callable[[], int] = int,
        standstills: Standstills | None = None,
    ) -> None:
        self.clock = clock
        self.turn = Turn(clock.monotonic, urgent)
        """The present turn of the task; turns are short while something is `urgent`."""
        self._threads_work = threads_work
        self._reported = set[str]() if reported is None else reported
        """Operators with long calls that are in the log, once for all their subtasks."""
        self.standstills = standstills or Standstills(clock.monotonic)
        self.handles_input = False
        """What is called now handles records of the task's input."""
        self.longest_call_s = 0.0
        """The longest time in which an operator held the event loop."""
        self.busy_s = 0.0
        self.backpressured_s = 0.0

    def called(self, operator: str, started: float) -> float:
        """An operator of the task has held the event loop since `started`; for how many seconds."""
        now = self.clock.monotonic()
        seconds = now - started
        if self.handles_input:
            self.standstills.handled(now)
        self.longest_call_s = max(self.longest_call_s, seconds)
        if seconds >= LONG_CALL_S and operator not in self._reported:
            self._reported.add(operator)
            Event.LONG_CALL.log(logger, operator=operator, milliseconds=seconds * 1000)
        return seconds

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
