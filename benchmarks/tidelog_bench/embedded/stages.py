"""The stages of a run: fill the state, warm up, measure, stop.

Invariant: both systems of a comparison draw their input from here, so both get the same words in
the same buffers, and both are measured between the same two moments.
"""

from collections.abc import Callable

from tidelog_bench.embedded.meter import CLOCK, Mark
from tidelog_bench.embedded.workload import Words

BUFFER = 2048
STEP_S = 0.02


class Stages:
    """Hands out buffers; knows in which stage the run is.

    `warm_s` counts from the end of the fill. A run ends after `seconds`, or at `records` of the
    stream when given; `rate` limits the records per second of the stream, which then comes in
    buffers of at most `STEP_S` seconds.
    """

    def __init__(
        self,
        words: Words,
        *,
        warm_s: float,
        seconds: float,
        records: int | None = None,
        rate: float | None = None,
        on_end: Callable[[], None] = lambda: None,
        on_start: Callable[[], None] = lambda: None,
    ) -> None:
        self._words = words
        self._warm_s = warm_s
        self._seconds = seconds
        self._records = records
        self._rate = rate
        self._buffer = BUFFER if rate is None else max(1, min(BUFFER, int(rate * STEP_S)))
        self._on_start = on_start
        self._on_end = on_end
        self._finished = False
        self.filled: Mark | None = None
        self.start: Mark | None = None
        self.end: Mark | None = None

    def read(self, position: int) -> list[str] | None:
        """The buffer at a position; empty: none yet, None: the run is over."""
        fill = self._words.fill
        if position < len(fill):
            return fill[position : position + BUFFER]
        if self.filled is None:
            self.filled = Mark.now(position)
        # Not before that mark: without a warm-up the measured time begins in this very call.
        now = CLOCK.monotonic()
        if self.start is None and now - self.filled.wall >= self._warm_s:
            self._on_start()
            self.start = Mark.now(position)
        if self._over(position, now):
            if self.end is None:
                self.end = Mark.now(position)
                self._on_end()
            return None
        if self._rate is not None:
            due = self.filled.wall + (position - len(fill)) / self._rate
            if due > now:
                return []
        stream = self._words.stream
        at = (position - len(fill)) % len(stream)
        return stream[at : at + self._buffer]

    def finish(self) -> None:
        """End the measured time with the next buffer, whatever is left of it."""
        self._finished = True

    def behind_s(self, mark: Mark) -> float:
        """Seconds by which the job was behind its source at a moment; 0 without a rate."""
        if self._rate is None or self.filled is None:
            return 0.0
        handled = (mark.records - self.filled.records) / self._rate
        return max(0.0, mark.wall - self.filled.wall - handled)

    def _over(self, position: int, now: float) -> bool:
        if self.start is None:
            return False
        if self._finished:
            return True
        if self._records is not None:
            return position - len(self._words.fill) >= self._records
        return now - self.start.wall >= self._seconds
