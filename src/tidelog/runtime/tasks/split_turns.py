"""The unfinished splits of a source task: which is read next, and which threads read ahead.

Invariants: every split that is due has its turn before another one has its second; of the readers
between two reads only so many hold what is scarce, such as an open file.
"""

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Final

from tidelog.effects import Effects
from tidelog.runtime.tasks.split_reading import (
    BATCH_BYTES,
    BATCH_RECORDS,
    IDLE_S,
    PATIENCE_S,
    ReadChunk,
    ReadThread,
    SplitReading,
    read_in_thread,
)

_THREADS: Final = 9
"""Most threads that read splits at a time."""
_TOGETHER: Final = 32
"""Splits that one thread reads, where they are small and no read waits for anything but storage."""
_OPEN_READERS: Final = 64
_LOOK_S: Final = 20e-6
"""Rest of a task for each of its splits before it looks at all of them again: where many are quiet
and each is due at a time of its own, a look at all for each of them would take a processor."""


class SplitTurns:
    """The splits that are being read, each once, in the order of their turns."""

    def __init__(
        self, effects: Effects, *, shares_threads: bool, max_active_splits: int | None = None
    ) -> None:
        self._effects = effects
        self._now = effects.clock.monotonic
        self._shares_threads = shares_threads
        """A thread may read several splits, one after the other."""
        self._threads: list[ReadThread] = []
        self._hurry_at = -math.inf
        """Until then the newest thread may still have a batch for a task that waits."""
        self._readings: dict[str, SplitReading] = {}
        self._turns: OrderedDict[str, SplitReading] = OrderedDict()
        self._max_active_splits = math.inf if max_active_splits is None else max_active_splits
        self._waiting: deque[SplitReading] = deque()
        """Splits that begin when others have ended."""
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

    def add(self, reading: SplitReading) -> bool:
        """A split that has its turn after all others; False when it waits for one to end."""
        self._readings[reading.split] = reading
        if len(self._turns) >= self._max_active_splits:
            self._waiting.append(reading)
            return False
        self._turns[reading.split] = reading
        return True

    def remove(self, reading: SplitReading) -> None:
        """The split has ended; its reader is closed."""
        for readings in (self._readings, self._turns, self._recent):
            readings.pop(reading.split, None)
        if self._waiting and len(self._turns) < self._max_active_splits:
            next_reading = self._waiting.popleft()
            self._turns[next_reading.split] = next_reading
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

    @property
    def busy(self) -> bool:
        """The newest thread reads, and has not done so for long."""
        return bool(self._threads) and not self._threads[-1].done() and self._now() < self._hurry_at

    def worth_waiting(self, reading: SplitReading, *, gathers: bool) -> bool:
        """Whether a thread may soon have read this split, or more for a batch of several."""
        if reading.has_chunks:
            return gathers and self.busy
        return self.busy if reading.is_queued else reading.has_thread

    def begin(self, reading: SplitReading) -> None:
        """Let threads read this split and those whose turns come next."""
        if self._shares_threads:
            if reading.is_free:
                self._start((reading, *islice(self._turns.values(), _TOGETHER - 1)))
            return
        for other in (reading, *islice(self._turns.values(), _THREADS - 1)):
            self._start((other,))

    def begin_next(self, but: Collection[SplitReading] = ()) -> None:
        """Let one more thread read splits whose turns come next, where one reads several."""
        if not self._shares_threads:
            return
        following = list(islice(self._turns.values(), _THREADS * _TOGETHER))
        now = self._now()
        free = (r for r in following if r.is_free and r.due_at <= now and r not in but)
        # The last splits may be queued after one whose storage does not answer.
        self._start(tuple(islice(free, _TOGETHER)) or tuple(r for r in following if r.is_queued))

    def _start(self, readings: Iterable[SplitReading]) -> None:
        self._threads = [thread for thread in self._threads if not thread.done()]
        now = self._now()
        due = {r: None for r in readings if r.is_queued or (r.is_free and r.due_at <= now)}
        if due and (len(self._threads) < _THREADS or not self._shares_threads):
            self._threads.append(read_in_thread(tuple(due), self._effects))
            self._hurry_at = now + PATIENCE_S

    def take(self, reading: SplitReading) -> ReadChunk | None:
        """What was read of a split; None: nothing yet. Raises what the source raised."""
        chunk = reading.take()
        self._recent.pop(reading.split, None)
        self._recent[reading.split] = reading
        if len(self._recent) > _OPEN_READERS:
            self._recent.pop(next(iter(self._recent))).pause()
        return chunk

    def gather(self, read: dict[SplitReading, ReadChunk], share: float = 1.0) -> None:
        """Add what threads have read of the splits that come next, up to a `share` of a batch."""
        records = sum(len(chunk.records) for chunk in read.values())
        size = sum(chunk.size_bytes for chunk in read.values())
        while records < share * BATCH_RECORDS and size < share * BATCH_BYTES:
            reading = self._first()
            if not reading.has_chunks or reading in read:
                return
            self._turns.move_to_end(reading.split)
            chunk = self.take(reading)
            if chunk is not None:
                read[reading] = chunk
                records += len(chunk.records)
                size += chunk.size_bytes

    def due_at(self, idle_after_ms: int | None) -> float:
        """When to look at the splits: one has its turn, or counts as idle; infinite: only an event
        can make it so.
        """
        now, due = self._now(), math.inf
        for reading in self._turns.values():
            # A split that is due waits for others, which wake the task when they have moved on.
            due = min(due, reading.due_at if reading.due_at > now else now + IDLE_S)
            idle_at = reading.idle_at(idle_after_ms)
            if idle_at is not None and reading.waits_for_records and not reading.idle:
                due = min(due, idle_at)
        return max(due, now + len(self._turns) * _LOOK_S)

    def _first(self) -> SplitReading:
        return next(iter(self._turns.values()))
