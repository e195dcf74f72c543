"""A source that reads only so many splits at once reads all of them, and event time waits."""

from collections import Counter
from operator import itemgetter
from typing import Any

import pytest

from tests.support.pipelines import Outside, config, run
from tidelog import Job, Source, SplitReader
from tidelog.storage.memory import MemoryStore

SPLITS = {f"split {number}": number for number in range(11)}
HOUR_MS = 3_600_000


class Hours(SplitReader):
    """A record a minute of one hour, ten at a time."""

    def __init__(self, source: "Few", hour: int, position: int) -> None:
        self.position = position
        self._source = source
        self._hour = hour
        source.opened.add(hour)
        source.most = max(source.most, len(source.opened))

    def read(self) -> list[Any] | None:
        first, self.position = self.position, min(self.position + 10, 60)
        minutes = range(first, self.position)
        return [(self._hour, self._hour * HOUR_MS + m * 60_000) for m in minutes] or None

    def close(self) -> None:
        self._source.opened.discard(self._hour)


class Few(Source):
    """Later hours come first: who takes time from some of the splits drops what the rest has."""

    def __init__(self, at_once: int | None, *, blocking: bool) -> None:
        self.at_once = at_once
        self.blocking = self.prompt = blocking
        self.opened: set[int] = set()
        self.most = 0

    def discover(self) -> list[str]:
        return list(SPLITS)[::-1]

    def open(self, split: str, position: Any) -> Hours:
        return Hours(self, SPLITS[split], position or 0)


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_no_record_is_late_because_its_split_had_to_wait(
    parallelism: int, apart: bool, blocking: bool
) -> None:
    source, sink = Few(2, blocking=blocking), Outside()
    job = Job("hours")
    read = job.source(source)
    if apart:  # a second use gives `event_time` a task of its own
        read.sink(Outside(), name="copies")
    timed = read.event_time(itemgetter(1), max_ahead_ms=60_000)
    windows = timed.key_by(itemgetter(0)).window(
        HOUR_MS, value_of=lambda _: 1, combine=lambda a, b: a + b
    )
    windows.sink(sink)
    run(job, MemoryStore(), config(parallelism=parallelism))
    assert Counter(sink.records) == {(h, h * HOUR_MS, 60): 1 for h in SPLITS.values()}
    assert 0 < source.most <= 2 * parallelism


def test_all_are_read_at_once_unless_the_source_says_otherwise() -> None:
    source = Few(None, blocking=False)
    job = Job("hours")
    job.source(source).sink(Outside())
    run(job, MemoryStore(), config(parallelism=1))
    assert source.most == len(SPLITS)
