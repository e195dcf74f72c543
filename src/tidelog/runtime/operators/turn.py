"""Turns: how long a task goes on before other tasks of the process run.

Invariant: between two looks at the turn an operator does a bounded piece of work: a portion of
records, one timer, one buffer of output. So whatever a job does, nothing but a single call of a
user's function holds the event loop for much longer than a turn.

A checkpoint passes through the loop a dozen times, from the barrier to its manifest, and waits
for a turn of every task each time: while one is under way turns are short.
"""

from collections.abc import Callable
from typing import Final

from tidelog.runtime.channels.messages import Batch

TURN_S: Final = 0.01
SHORTER: Final = 8
"""A turn is so many times shorter while a checkpoint is under way."""
OUTPUT_RECORDS: Final = 2048
"""Records per buffer where an operator cuts its own output ..."""
OUTPUT_BYTES: Final = 1 << 20
"""... and bytes from which on it does."""

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

    def over(self) -> bool:
        """Whether to let other tasks run."""
        return self.now() >= self.until
