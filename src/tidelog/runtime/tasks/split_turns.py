"""The unfinished splits of a source task: which is read next, and which threads read ahead.

Invariants: every split that is due has its turn before another one has its second; of the readers
between two reads only so many hold what is scarce, such as an open file.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from tidelog.runtime.tasks.split_reading import IDLE_S, Portion, SplitReading

_AHEAD: Final = 8
"""Splits that threads read beside the one whose turn it is: small files are opened meanwhile."""
_GATHERED_RECORDS: Final = 1024
"""Records from which on no further split's are added to a batch."""
_OPEN_READERS: Final = 64


class SplitTurns:
    """The splits that are being read, each once, in the order of their turns."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        """Seconds on the monotonic clock."""
        self._readings: dict[str, SplitReading] = {}
        self._turns: OrderedDict[str, SplitReading] = OrderedDict()
        self._recent: dict[str, SplitReading] = {}
        """Splits with an open reader, the one that was not read for longest first."""

    def __len__(self) -> int:
        return len(self._readings)

    def __iter__(self) -> Iterator[SplitReading]:
        return iter(self._readings.values())

    @property
    def names(self) -> tuple[str, ...]:
        """The splits in the order in which they were found."""
        return tuple(self._readings)

    def add(self, reading: SplitReading) -> None:
        """A split that has its turn behind all others."""
        self._readings[reading.split] = self._turns[reading.split] = reading

    def remove(self, reading: SplitReading) -> None:
        """The split has ended; its reader is closed."""
        for known in (self._readings, self._turns, self._recent):
            known.pop(reading.split, None)
        reading.close()

    def next(self, may_be_read: Callable[[str], bool]) -> SplitReading | None:
        """The next split in turn that may have something and that the caller allows."""
        now = self._now()
        for _ in range(len(self._turns)):
            reading = self._first()
            self._turns.move_to_end(reading.split)
            if reading.due_at <= now and may_be_read(reading.split):
                return reading
        return None

    def begin_others(self) -> None:
        """Let threads read the splits whose turns come next."""
        now = self._now()
        for reading in islice(self._turns.values(), _AHEAD):
            if reading.due_at <= now:
                reading.begin()

    def take(self, reading: SplitReading) -> Portion | None:
        """What was read of a split; None: nothing yet. Raises what the source raised."""
        portion = reading.take()
        self._recent.pop(reading.split, None)
        self._recent[reading.split] = reading
        if len(self._recent) > _OPEN_READERS:
            self._recent.pop(next(iter(self._recent))).pause()
        return portion

    def gather(self, read: dict[SplitReading, Portion]) -> None:
        """Add what threads have read of the splits whose turns come next, up to a batch."""
        records = sum(len(portion.records) for portion in read.values())
        while records < _GATHERED_RECORDS:
            reading = self._first()
            if not reading.handed or reading in read:
                return
            self._turns.move_to_end(reading.split)
            portion = self.take(reading)
            if portion is not None:
                read[reading] = portion
                records += len(portion.records)

    def due_at(self, idle_after_ms: int | None) -> float:
        """When a split has its turn or counts as idle; infinite: only an event can tell."""
        now, due = self._now(), math.inf
        for reading in self._readings.values():
            # A split that is due waits for others, which wake the task when they have moved on.
            due = min(due, reading.due_at if reading.due_at > now else now + IDLE_S)
            idle_at = reading.idle_at(idle_after_ms)
            if idle_at is not None and reading.waits and not reading.idle:
                due = min(due, idle_at)
        return due

    def _first(self) -> SplitReading:
        return next(iter(self._turns.values()))
