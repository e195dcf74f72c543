"""The input of a run: words drawn before anything is measured, and handed out in stages.

Invariants: the same arguments give the same words in the same order in every process; all
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
class Words:
    """`fill` has every word once, in random order; `stream` is what is measured."""

    fill: list[str]
    stream: list[str]


def draw(keys: int, key_bytes: int, draws: int, seed: int) -> Words:
    """A stream of `draws` words, drawn uniformly of `keys` distinct ones of `key_bytes` each; what
    is drawn is no garbage collector's business.
    """
    rng = random.Random(seed)
    # Base64 of random bytes: LZ4 gains nothing on it, so sizes on disk are what they say.
    raw_bytes = key_bytes * 3 // 4 + 1
    words = [base64.b64encode(rng.randbytes(raw_bytes))[:key_bytes].decode() for _ in range(keys)]
    found = Words(words, rng.choices(words, k=draws))
    gc.collect()
    gc.freeze()
    return found


def counted(words: list[str]) -> list[tuple[str, int]]:
    """The words of one buffer with how often each occurs."""
    return list(collections.Counter(words).items())


@dataclass
class Stages:
    """Hands out buffers: fill the state, warm up, measure, stop; knows the stage of the run."""

    words: Words
    warm_s: float
    """From the end of the fill."""
    seconds: float
    records: int | None = None
    """When given, the run ends at this record of the stream, and not after `seconds`."""
    rate: float | None = None
    """Limits the records per second of the stream, which then comes in buffers of at most `STEP_S`
    seconds."""
    on_start: Callable[[Mark], None] = lambda mark: None
    on_end: Callable[[Mark], None] = lambda mark: None
    filled: Mark | None = None
    start: Mark | None = None
    end: Mark | None = None

    def read(self, position: int) -> list[str] | None:
        """The buffer at a position; empty: none yet, None: the run has ended."""
        fill = self.words.fill
        if position < len(fill):
            return fill[position : position + BUFFER]
        if self.filled is None:
            self.filled = Mark.now(position)
        # Not before that mark: without a warm-up the measured time begins in this very call.
        now = CLOCK.monotonic()
        if self.start is None and now - self.filled.wall >= self.warm_s:
            self.start = Mark.now(position)
            self.on_start(self.start)
        if self._has_ended(position, now):
            if self.end is None:
                self.end = Mark.now(position)
                self.on_end(self.end)
            return None
        if self.rate is not None:
            due = self.filled.wall + (position - len(fill)) / self.rate
            if due > now:
                return []
        stream = self.words.stream
        at = (position - len(fill)) % len(stream)
        buffer = BUFFER if self.rate is None else max(1, min(BUFFER, int(self.rate * STEP_S)))
        return stream[at : at + buffer]

    def lag_s(self, mark: Mark) -> float:
        """Seconds of input that the job lacked at a moment; 0 without a rate."""
        if self.rate is None or self.filled is None:
            return 0.0
        handled = (mark.records - self.filled.records) / self.rate
        return max(0.0, mark.wall - self.filled.wall - handled)

    def _has_ended(self, position: int, now: float) -> bool:
        if self.start is None:
            return False
        if self.records is not None:
            return position - len(self.words.fill) >= self.records
        return now - self.start.wall >= self.seconds
