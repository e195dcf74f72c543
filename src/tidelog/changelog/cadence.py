"""The cadence of checkpoints, shared by all who move bytes: the log goes first.

Invariants: a table upload starts only when nothing of a checkpoint is on its way, and, as far as
its duration can be estimated, ends before the next checkpoint is due; it never waits longer than
its patience, so tables make progress under any cadence.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from tidelog.effects import Clock, wait_for

FLUSH_LEAD_S: Final = 0.10
"""Seconds before a checkpoint is due at which write buffers are flushed."""
UPLOAD_LEAD_S: Final = 0.08
"""Seconds before it at which flushed changes are uploaded: few are left for the barrier."""
_SHORT_S: Final = 0.05
"""A transfer this short may start at any moment between two checkpoints' transfers."""


class Cadence:
    """When the next checkpoint is due, and whether one is moving bytes now."""

    def __init__(self, clock: Clock, pass_on: Callable[[str, Any], None] | None = None) -> None:
        """`pass_on` gets each call of `expect` and `triggered`, for those in other processes."""
        self._clock = clock
        self._pass_on = pass_on
        self._due_at: float | None = None
        self._expected_at = 0.0
        self.transfers = 0
        """Transfers of a checkpoint that are on their way."""
        self.under_way = False
        """A checkpoint was triggered and is neither durable nor given up."""
        self._not_captured = 0
        self._changed = asyncio.Event()

    def expect(self, due_at: float | None) -> None:
        """No checkpoint is under way; the next one is due then (monotonic seconds)."""
        if self._pass_on is not None:
            self._pass_on("expect", due_at)
        self._due_at = due_at
        self.under_way = False
        self._expected_at = self._clock.monotonic()
        self._changed.set()

    def triggered(self, subtasks: int) -> None:
        """A checkpoint of so many subtasks was triggered; the next one is not expected yet."""
        if self._pass_on is not None:
            self._pass_on("triggered", subtasks)
        self._due_at = None
        self.under_way = True
        self._not_captured = subtasks

    def captured(self) -> None:
        """A subtask has taken its part of the checkpoint that is under way."""
        self._not_captured -= 1

    @contextmanager
    def moving(self) -> Iterator[None]:
        """Within, bytes of a checkpoint are on their way."""
        self.transfers += 1
        try:
            yield
        finally:
            self.transfers -= 1
            self._changed.set()

    @property
    def all_captured(self) -> bool:
        """All subtasks have taken their parts of the checkpoint that is under way."""
        return self.under_way and self._not_captured <= 0

    def leads(self, since: float, lead_s: float) -> bool:
        """Whether the moment `lead_s` before the next checkpoint came after `since`."""
        return self._due_at is not None and since < self._due_at - lead_s <= self._clock.monotonic()

    def lead_at(self, lead_s: float) -> float | None:
        """The moment `lead_s` before the next checkpoint; None while one is under way."""
        return None if self._due_at is None else self._due_at - lead_s

    async def room_for(self, seconds: float, patience_s: float) -> None:
        """Wait until a transfer of that duration disturbs no checkpoint, or patience ends."""
        give_up_at = self._clock.monotonic() + patience_s
        while not self._fits(seconds):
            remaining_s = give_up_at - self._clock.monotonic()
            if remaining_s <= 0:
                return
            self._changed.clear()
            await wait_for(self._changed, self._clock, remaining_s)

    def _fits(self, seconds: float) -> bool:
        if self.transfers:
            return False
        now = self._clock.monotonic()
        if self._due_at is None or now >= self._due_at:
            return seconds <= _SHORT_S
        # Right after a checkpoint is the best moment there is for one that never fits.
        return now + seconds <= self._due_at or now - self._expected_at <= _SHORT_S
