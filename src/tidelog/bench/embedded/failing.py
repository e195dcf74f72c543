"""A source that goes on at a fixed rate while the job behind it fails and starts again.

Invariant: what is due at a moment depends on the clock alone, so the time a job is down is work
that waits for it; a record is handed out again only because a restart went back to it.
"""

import math
from typing import Final

from tidelog.bench.embedded.meter import CLOCK, Mark
from tidelog.bench.embedded.stages import Stages
from tidelog.bench.embedded.workload import Words
from tidelog.bench.measurement import Points

_SAMPLE_S: Final = 0.01


class InjectedFailure(Exception):
    """What the job fails with."""


class FailingStages(Stages):
    """Hands out the buffers of a run; `arm` lets the next read fail."""

    def __init__(self, words: Words, *, rate: float) -> None:
        super().__init__(words, warm_s=math.inf, seconds=math.inf, rate=rate)
        self.failed: Mark | None = None
        """The failure, and how far the job had read."""
        self.resumed: Mark | None = None
        """The first read of the restarted job, and where it goes on."""
        self.caught_up: Mark | None = None
        """Then nothing was due any more."""
        self._armed = False
        self._lag: list[tuple[float, float]] = []

    def arm(self) -> None:
        """Let the next read raise InjectedFailure."""
        self._armed = True

    def read(self, position: int) -> list[str] | None:
        """The buffer at a position, or what is due of it."""
        if self._armed:
            self._armed = False
            self.failed = Mark.now(position)
            raise InjectedFailure
        if self.failed is not None and self.resumed is None:
            self.resumed = Mark.now(position)
        found = super().read(position)
        if self.filled is not None:
            self._observe(position, due=bool(found))
        return found

    def lag_s(self, since: float) -> Points:
        """How far the job was behind its source: (seconds after a moment of the clock, seconds)."""
        return [(at - since, lag) for at, lag in self._lag if at >= since]

    def _observe(self, position: int, *, due: bool) -> None:
        if self.resumed is not None and self.caught_up is None and not due:
            self.caught_up = Mark.now(position)
        now = CLOCK.monotonic()
        if not self._lag or now - self._lag[-1][0] >= _SAMPLE_S:
            self._lag.append((now, self.behind_s(Mark.now(position))))
