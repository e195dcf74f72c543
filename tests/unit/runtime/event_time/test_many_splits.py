"""What a file costs does not depend on how many others there are, wherever event times are made."""

from collections import Counter
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import pytest

from tests.support.pipelines import Outside, config, run
from tests.support.steps import calls_of
from tidelog import Job, Source, SplitReader, Stream, Tumbling
from tidelog.storage.memory import MemoryStore

WINDOW = 100


class Lines(Source):
    """So many splits with a record or two each."""

    def __init__(self, splits: int) -> None:
        self.splits = splits

    def discover(self) -> list[str]:
        return [f"file-{number}" for number in range(self.splits)]

    def open(self, split: str, position: Any) -> SplitReader:
        return _Line(int(split.partition("-")[2]), position or 0)


class _Line(SplitReader):
    def __init__(self, number: int, position: int) -> None:
        self.number, self.position = number, position

    def read(self) -> list[Any] | None:
        if self.position > self.number % 2:
            return None
        self.position += 1
        return [("k", self.number * 7 % 1_000 + self.position)]


def at_the_source(job: Job, splits: int) -> Stream:
    return job.source(Lines(splits))


def rebalanced(job: Job, splits: int) -> Stream:
    return job.source(Lines(splits)).rebalance()


def after_a_union(job: Job, splits: int) -> Stream:
    half = splits // 2
    return job.source(Lines(half)).union(job.source(Lines(half), name="other"))


def used_twice(job: Job, splits: int) -> Stream:
    read = job.source(Lines(splits))
    read.sink(Outside(), name="copies")
    return read


def counted(where: Callable[[Job, int], Stream], splits: int, idle: Any) -> tuple[Any, int]:
    """The windows of a job, and what it cost."""
    job, sink = Job("many"), Outside()
    timed = where(job, splits).event_time(
        itemgetter(1), max_delay_ms=1_000, idle_after_ms=idle, max_ahead_ms=10**9
    )
    timed.key_by(itemgetter(0)).window(Tumbling(WINDOW)).count().sink(sink)
    cost = calls_of(lambda: run(job, MemoryStore(), config(parallelism=2)))
    return Counter({(key, start): n for key, start, n in sink.records}), cost


@pytest.mark.parametrize("idle", [None, "10m"])
@pytest.mark.parametrize("where", [at_the_source, rebalanced, after_a_union, used_twice])
def test_four_times_the_files_cost_four_times_as_much(where: Any, idle: Any) -> None:
    costs = {}
    for splits in (64, 256):
        windows, costs[splits] = counted(where, splits, idle)
        assert windows == expected(where, splits)
    assert costs[256] < 4.5 * costs[64]


def expected(where: Any, splits: int) -> Counter[Any]:
    numbers = list(range(splits // 2)) * 2 if where is after_a_union else list(range(splits))
    times = [n * 7 % 1_000 + position for n in numbers for position in range(1, n % 2 + 2)]
    return Counter(("k", time - time % WINDOW) for time in times)
