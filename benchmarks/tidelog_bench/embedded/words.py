"""The input of a run: words drawn before anything is measured, and handed out in stages.

Invariants: the same workload and seed give the same words in the same order in every process; all
systems of a comparison draw their input from here, so all get the same words in the same buffers,
and all are measured between the same two moments.
"""

import base64
import collections
import gc
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tidelog_bench.embedded.meter import CLOCK, Mark

BUFFER: Final = 2048
STEP_S: Final = 0.02


@dataclass(frozen=True)
class Workload:
    """`keys` distinct words of `key_bytes` each, drawn uniformly."""

    keys: int
    key_bytes: int = 16
    draws: int = 8_000_000
    """Length of the pre-drawn stream; a run that needs more goes round."""


@dataclass(frozen=True)
class Words:
    """`fill` has every word once, in random order; `stream` is what is measured."""

    fill: list[str]
    stream: list[str]


def draw(workload: Workload, seed: int) -> Words:
    """Draw the words of a workload; what is drawn is no garbage collector's business."""
    rng = random.Random(seed)
    # Base64 of random bytes: LZ4 gains nothing on it, so sizes on disk are what they say.
    raw_bytes = workload.key_bytes * 3 // 4 + 1
    words = [
        base64.b64encode(rng.randbytes(raw_bytes))[: workload.key_bytes].decode()
        for _ in range(workload.keys)
    ]
    found = Words(words, rng.choices(words, k=workload.draws))
    gc.collect()
    gc.freeze()
    return found


def counted(words: list[str]) -> list[tuple[str, int]]:
    """The words of one buffer with how often each occurs."""
    return list(collections.Counter(words).items())


class Stages:
    """Hands out buffers: fill the state, warm up, measure, stop; knows in which stage the run is.

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
        on_start: Callable[[Mark], None] = lambda mark: None,
        on_end: Callable[[Mark], None] = lambda mark: None,
    ) -> None:
        self._words = words
        self._warm_s = warm_s
        self._seconds = seconds
        self._records = records
        self._rate = rate
        self._buffer = BUFFER if rate is None else max(1, min(BUFFER, int(rate * STEP_S)))
        self._on_start = on_start
        self._on_end = on_end
        self.filled: Mark | None = None
        self.start: Mark | None = None
        self.end: Mark | None = None

    def read(self, position: int) -> list[str] | None:
        """The buffer at a position; empty: none yet, None: the run has ended."""
        fill = self._words.fill
        if position < len(fill):
            return fill[position : position + BUFFER]
        if self.filled is None:
            self.filled = Mark.now(position)
        # Not before that mark: without a warm-up the measured time begins in this very call.
        now = CLOCK.monotonic()
        if self.start is None and now - self.filled.wall >= self._warm_s:
            self.start = Mark.now(position)
            self._on_start(self.start)
        if self._has_ended(position, now):
            if self.end is None:
                self.end = Mark.now(position)
                self._on_end(self.end)
            return None
        if self._rate is not None:
            due = self.filled.wall + (position - len(fill)) / self._rate
            if due > now:
                return []
        stream = self._words.stream
        at = (position - len(fill)) % len(stream)
        return stream[at : at + self._buffer]

    def lag_s(self, mark: Mark) -> float:
        """Seconds of input that the job lacked at a moment; 0 without a rate."""
        if self._rate is None or self.filled is None:
            return 0.0
        handled = (mark.records - self.filled.records) / self._rate
        return max(0.0, mark.wall - self.filled.wall - handled)

    def _has_ended(self, position: int, now: float) -> bool:
        if self.start is None:
            return False
        if self._records is not None:
            return position - len(self._words.fill) >= self._records
        return now - self.start.wall >= self._seconds
