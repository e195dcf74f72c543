"""The jobs that are measured, on tidelog's embedded runtime.

Invariant: sources and sinks cost next to nothing, so what is measured is keyed state.
"""

import operator
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog import JobArguments, Sliding, TextFileSource
from tidelog.effects import hold_thread
from tidelog.runtime.graph import Job
from tidelog.runtime.sink import Sink, SinkContext, SinkWriter
from tidelog.runtime.source import Source, SplitReader
from tidelog_bench.embedded.words import counted

Read = Callable[[int], list[Any] | None]
_PAYLOAD_BYTES: Final = 100
ON, OFF, OFF_RARE = "on", "off", "off-rare"
"""The changelog on or off with the same interval of checkpoints; off with checkpoints as rare as
the materializations of ON.
"""


@dataclass(eq=False)
class ListSource(Source):
    """One split whose buffers come from `buffer_at(position)`.

    After None, an endless one waits to be stopped; the other ends the job.
    """

    buffer_at: Read
    endless: bool = True

    def discover(self) -> Iterable[str]:
        return ("words",)

    def open(self, split: str, position: Any) -> SplitReader:
        return _Reader(self, position or 0)


class _Reader(SplitReader):
    delay_s = 0.001

    def __init__(self, source: ListSource, position: int) -> None:
        self.position = position
        self._source = source

    def read(self) -> list[Any] | None:
        records = self._source.buffer_at(self.position)
        if records is None:
            # The run has ended: idle until the job is stopped, as after a crash.
            return [] if self._source.endless else None
        self.position += len(records)
        return records


@dataclass(eq=False)
class NullSink(Sink):
    """Drops everything, and holds the thread so many seconds for each buffer."""

    seconds: float = 0.0

    def open(self, context: SinkContext) -> SinkWriter:
        return _NullWriter(self.seconds)


@dataclass(eq=False)
class _NullWriter(SinkWriter):
    seconds: float

    def write(self, records: Sequence[Any]) -> None:
        if self.seconds:
            hold_thread(self.seconds)


def word_count(source: Source, sink: Sink | None = None) -> Job:
    """Count words; nothing is emitted before the end."""
    job = Job("word-count")
    first, second = operator.itemgetter(0), operator.itemgetter(1)
    stream = job.source(source).map_batches(counted).key_by(first)
    stream.aggregate(second, operator.add, name="count").sink(sink or NullSink())
    return job


def followed(arguments: JobArguments) -> Job:
    """Count the lines of files that go on appearing in the input directory; never ends."""
    return word_count(TextFileSource(arguments.required_input(), follow=True))


def _timed(read: Read) -> Read:
    """Words as records (word, event time in ms, payload of 100 bytes), one a millisecond."""
    noise = random.Random(0).randbytes(1 << 16).hex()
    last = len(noise) - _PAYLOAD_BYTES

    def records(position: int) -> list[Any] | None:
        words = read(position)
        return words and [
            (word, n, noise[(at := n * 37 % last) : at + _PAYLOAD_BYTES])
            for n, word in enumerate(words, position)
        ]

    return records


def sliding_window(read: Read, *, slides: int, slide_ms: int) -> Job:
    """Windows of `slides` slides that keep words with times and payloads."""
    job = Job("sliding-window")
    records = job.source(ListSource(_timed(read))).event_time(operator.itemgetter(1))
    windows = records.key_by(operator.itemgetter(0)).window(Sliding(slides * slide_ms, slide_ms))
    counts = windows.records(lambda key, start, records: (key, start, len(records)))
    counts.sink(NullSink())
    return job
