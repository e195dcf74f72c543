"""The jobs that are measured, on tidelog's embedded runtime.

Invariant: sources and sinks cost next to nothing, so what is measured is keyed state.
"""

import operator
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from tidelog.runtime.graph import Job
from tidelog.runtime.sink import Sink, SinkContext, SinkWriter
from tidelog.runtime.source import Source, SplitReader
from tidelog_bench.embedded.workload import counted

Read = Callable[[int], list[Any] | None]
PAYLOAD_BYTES: Final = 100


class _Reader(SplitReader):
    delay_s = 0.001

    def __init__(self, read: Read, position: int, endless: bool) -> None:
        self.position = position
        self._read = read
        self._endless = endless

    def read(self) -> list[Any] | None:
        records = self._read(self.position)
        if records is None:
            # The run is over: idle until the job is stopped, as after a crash.
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


class _NullWriter(SinkWriter):
    def write(self, records: Sequence[Any]) -> None:
        pass


class NullSink(Sink):
    """Drops everything."""

    def open(self, context: SinkContext) -> SinkWriter:
        return _NullWriter()


def word_count(read: Read, sink: Sink | None = None, *, endless: bool = True) -> Job:
    """Count words; nothing is emitted before the end."""
    job = Job("word-count")
    first, second = operator.itemgetter(0), operator.itemgetter(1)
    stream = job.source(ListSource(read, endless=endless)).map_batches(counted).key_by(first)
    stream.aggregate(second, operator.add, name="count").sink(sink or NullSink())
    return job


def fanned_out_count(read: Read) -> Job:
    """Count words in as many subtasks as the job has, fed by one: n channels instead of n x n."""
    job = Job("word-count")
    stream = job.source(ListSource(read), parallelism=1).key_by(_whole)
    stream.aggregate(_once, operator.add, name="count").sink(NullSink())
    return job


def _whole(word: str) -> str:
    return word


def _once(_: str) -> int:
    return 1


def timed(read: Read, per_s: float = 1000.0) -> Read:
    """Words as records (word, event time in ms, payload of 100 bytes), `per_s` a second."""
    noise = random.Random(0).randbytes(1 << 16).hex()
    last = len(noise) - PAYLOAD_BYTES

    def records(position: int) -> list[Any] | None:
        words = read(position)
        if not words:
            return words
        numbers = range(position, position + len(words))
        return [
            (word, int(n * 1000 / per_s), noise[(at := n * 37 % last) : at + PAYLOAD_BYTES])
            for word, n in zip(words, numbers, strict=True)
        ]

    return records


def sliding_window(read: Read, *, slides: int, slide_ms: int) -> Job:
    """Windows of `slides` slides that keep their records: (word, event time, payload)."""
    job = Job("sliding-window")
    records = job.source(ListSource(read)).event_time(operator.itemgetter(1))
    windows = records.key_by(operator.itemgetter(0)).window_records(
        slides * slide_ms, slide_ms, function=lambda key, start, records: (key, start, len(records))
    )
    windows.sink(NullSink())
    return job
