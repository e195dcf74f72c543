"""A pass through the timers of a task: what a watermark, or the clock, has made due.

Invariants: between two steps of a pass the state is consistent with the outputs, so records and
barriers may come in between; a pass ends also where records never end: its share of the time grows
with its age, and with it back-pressure.
"""

from collections.abc import Iterator
from typing import Final

from tidelog.runtime.channels.messages import Batch

SHARE: Final = 1 / 3
"""Seconds that a pass gets for each one that records take ..."""
RAMP_S: Final = 1.0
"""... and once it is older than this, as many as it is old in these units."""
FIRST_S: Final = 0.02
"""A shorter pass ends before the next records: most do, and their watermarks go on at once."""
_AHEAD_S: Final = 0.01
"""So much of what a pass takes beyond its share, while no record waits, counts against it."""


class FiringPass:
    """Fires in steps: `batches` has a `PAUSE` after each."""

    __slots__ = ("_balance_s", "_begun_s", "batches", "limit")

    def __init__(self, batches: Iterator[Batch], limit: int | None, now_s: float) -> None:
        self.batches = batches
        self.limit = limit
        """The watermark that fires; None: the clock."""
        self._begun_s = now_s
        self._balance_s = FIRST_S

    @property
    def due(self) -> bool:
        """Whether the next step is to come before records that wait."""
        return self._balance_s >= 0

    def others_took(self, seconds: float, now_s: float) -> None:
        """Records, mostly, were handled for so long in between."""
        self._balance_s += seconds * max(SHARE, (now_s - self._begun_s) / RAMP_S)

    def step_took(self, seconds: float) -> None:
        """A step of this pass took so long."""
        self._balance_s = max(self._balance_s - seconds, -_AHEAD_S)
