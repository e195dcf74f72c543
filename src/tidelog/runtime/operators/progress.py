"""How steadily a task goes on: how long it stood still, and how old records are where they end.

Invariant: what is measured costs nothing per record: standstills reuse the clock readings of the
calls that handle records, and latencies are those of a few markers a second.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from tidelog.events import Event
from tidelog.ids import SubtaskId

STANDSTILL_S: Final = 1.0
"""A task that handled no record of its waiting input for so long is reported, and counted."""
_REPORTS_EVERY_S: Final = 60.0
"""After a report of one operator its other standstills are only counted for so long."""

MARKERS_EVERY_S: Final = 0.05
"""How often a subtask of a source sends a marker behind its records."""
PERIOD_S: Final = 60.0
"""Older latencies are forgotten."""
_SAMPLES: Final = 2048
"""Latencies of one subtask that are remembered."""

logger = logging.getLogger(__name__)


class Standstills:
    """The times in which a task handled no record although its input had some.

    A source cannot know what waits outside: its input begins when it was last woken up to read,
    and ends when there was nothing to read.
    """

    __slots__ = (
        "_handled_at",
        "_is_counted",
        "_longest_s",
        "_now",
        "_reported_at",
        "_since",
        "_subtask",
        "_waiting",
        "count",
    )

    def __init__(
        self,
        now: Callable[[], float],
        subtask: SubtaskId | None = None,
        reported_at: dict[str, float] | None = None,
    ) -> None:
        """`reported_at` is shared by all subtasks: when each operator was last reported."""
        self._now = now
        self._subtask = subtask
        self._reported_at = {} if reported_at is None else reported_at
        self.count = 0
        """Standstills of `STANDSTILL_S` or longer."""
        self._longest_s = 0.0
        self._waiting = 0
        """Buffers of records that are not handled, or not to their end."""
        self._since: float | None = None
        """When the input began that has not ended since; None: nothing waits."""
        self._handled_at = 0.0
        self._is_counted = False
        """The present standstill is in `count`."""

    @property
    def longest_s(self) -> float:
        """The longest one since the start, the present one included."""
        return max(self._longest_s, self._present_s())

    def begin(self) -> None:
        """The task runs from now on."""
        self._handled_at = self._now()

    def resume(self) -> None:
        """There may be input from now on."""
        if self._since is None:
            self._since = self._now()

    def starve(self) -> None:
        """There is no input."""
        self._since = None

    def arrived(self) -> None:
        """A buffer of records waits."""
        self.resume()
        self._waiting += 1

    def handled_buffer(self, *, more: bool = False) -> None:
        """A buffer that waited is handled; `more`: there may be others that are not counted."""
        self._waiting -= 1
        if not (self._waiting or more):
            self._since = None

    def handled(self, now: float) -> None:
        """Some records of the input were handled."""
        since = self._since
        if since is not None:
            seconds = now - (since if since > self._handled_at else self._handled_at)
            self._longest_s = max(self._longest_s, seconds)
            if seconds >= STANDSTILL_S:
                self._count(seconds)
        self._is_counted = False
        self._handled_at = now

    def look(self) -> None:
        """Report a standstill that lasts: nobody else would if it never ended."""
        seconds = self._present_s()
        self._longest_s = max(self._longest_s, seconds)
        if seconds >= STANDSTILL_S:
            self._count(seconds)

    def _present_s(self) -> float:
        if self._since is None or not self._waiting:
            return 0.0
        return self._now() - max(self._since, self._handled_at)

    def _count(self, seconds: float) -> None:
        if self._is_counted:
            return
        self._is_counted = True
        self.count += 1
        if self._subtask is None:
            return
        now, operator = self._now(), self._subtask.operator
        if now >= self._reported_at.get(operator, -_REPORTS_EVERY_S) + _REPORTS_EVERY_S:
            self._reported_at[operator] = now
            Event.STANDSTILL.log(logger, subtask=self._subtask, seconds=seconds)


class Latencies:
    """From the source's reading to the end of the path, of the last minute's markers."""

    __slots__ = ("_now", "_samples")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._samples: deque[tuple[float, float]] = deque(maxlen=_SAMPLES)
        """When a marker came, and how old it was; in seconds."""

    def add(self, read_at: float) -> None:
        """What was read then is at the end of the path."""
        now = self._now()
        self._samples.append((now, now - read_at))

    @property
    def recent(self) -> list[float]:
        """The latencies of the last minute, in seconds."""
        oldest = self._now() - PERIOD_S
        return [seconds for moment, seconds in self._samples if moment >= oldest]
