"""The jobs that are measured, on tidelog's embedded runtime.

Invariant: sources and sinks cost next to nothing, so what is measured is keyed state.
"""

import operator
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from tidelog import Sliding
from tidelog.effects import hold_thread
from tidelog.runtime.graph import Job
from tidelog.runtime.sink import Sink, SinkContext, SinkWriter
from tidelog.runtime.source import Source, SplitReader
from tidelog_bench.embedded.run import RunSpec, spec_of
from tidelog_bench.embedded.words import Stages, counted
from tidelog_bench.experiment import Trial

Read = Callable[[int], list[Any] | None]
_PAYLOAD_BYTES: Final = 100
ON, OFF, OFF_RARE = "on", "off", "off-rare"
"""The changelog on or off with the same interval of checkpoints; off with checkpoints as rare as
the materializations of ON.
"""


class _Reader(SplitReader):
    delay_s = 0.001

    def __init__(self, read: Read, position: int, endless: bool) -> None:
        self.position = position
        self._read = read
        self._endless = endless

    def read(self) -> list[Any] | None:
        records = self._read(self.position)
        if records is None:
            # The run has ended: idle until the job is stopped, as after a crash.
            return [] if self._endless else None
        self.position += len(records)
        return records


class ListSource(Source):
    """One split whose buffers come from `read(position)`.

    After None, an endless one waits to be stopped; the other ends the job.
    """

    def __init__(self, read: Read, *, endless: bool = True) -> None:
        self._read = read
        self._endless = endless

    def discover(self) -> Iterable[str]:
        return ("words",)

    def open(self, split: str, position: Any) -> SplitReader:
        return _Reader(self._read, position or 0, self._endless)


class NullSink(Sink):
    """Drops everything, and holds the thread so many seconds for each buffer."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds

    def open(self, context: SinkContext) -> SinkWriter:
        return _NullWriter(self._seconds)


class _NullWriter(SinkWriter):
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def write(self, records: Sequence[Any]) -> None:
        if self._seconds:
            hold_thread(self._seconds)


def word_count(read: Read, sink: Sink | None = None, *, endless: bool = True) -> Job:
    """Count words; nothing is emitted before the end."""
    job = Job("word-count")
    first, second = operator.itemgetter(0), operator.itemgetter(1)
    stream = job.source(ListSource(read, endless=endless)).map_batches(counted).key_by(first)
    stream.aggregate(second, operator.add, name="count").sink(sink or NullSink())
    return job


def count_words(stages: Stages) -> Job:
    """The word count of a run."""
    return word_count(stages.read)


def timed(read: Read, per_s: float = 1000.0) -> Read:
    """Words as records (word, event time in ms, payload of 100 bytes), `per_s` a second."""
    noise = random.Random(0).randbytes(1 << 16).hex()
    last = len(noise) - _PAYLOAD_BYTES

    def records(position: int) -> list[Any] | None:
        words = read(position)
        if not words:
            return words
        numbers = range(position, position + len(words))
        return [
            (word, int(n * 1000 / per_s), noise[(at := n * 37 % last) : at + _PAYLOAD_BYTES])
            for word, n in zip(words, numbers, strict=True)
        ]

    return records


def sliding_window(read: Read, *, slides: int, slide_ms: int) -> Job:
    """Windows of `slides` slides that keep their records: (word, event time, payload)."""
    job = Job("sliding-window")
    records = job.source(ListSource(read)).event_time(operator.itemgetter(1))
    windows = (
        records.key_by(operator.itemgetter(0))
        .window(Sliding(slides * slide_ms, slide_ms))
        .records(lambda key, start, records: (key, start, len(records)))
    )
    windows.sink(NullSink())
    return job


@dataclass(frozen=True, slots=True)
class Load:
    """A job at a fixed rate: words that are counted, or windows of them."""

    job: Literal["wordcount", "window"]
    rate: float
    warm_s: float
    seconds: float
    checkpoint_s: float
    materialize_s: float
    slides: int = 1
    """Slides that a window covers ..."""
    window_s: float = 0.0
    """... and its size."""

    def build(self, stages: Stages) -> Job:
        """The job over the records of a run."""
        if self.job == "wordcount":
            return count_words(stages)
        slide_ms = int(self.window_s * 1000) // self.slides
        records = timed(stages.read, self.rate)
        return sliding_window(records, slides=self.slides, slide_ms=slide_ms)

    def spec(self, trial: Trial) -> RunSpec:
        """The run of one of the variants ON, OFF and OFF_RARE."""
        needed = (self.warm_s + self.seconds) * self.rate
        rare = trial.variant == OFF_RARE
        return spec_of(
            trial,
            seconds=self.seconds,
            draws=int(min(max(needed, 10_000), 4_000_000)),
            changelog=trial.variant == ON,
            checkpoint_s=self.materialize_s if rare else self.checkpoint_s,
            filled=self.job == "wordcount",
        )
