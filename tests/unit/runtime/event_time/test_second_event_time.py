"""An `event_time` behind another one: each drives what follows it, and nothing else."""

from typing import Any

import pytest

from tests.support.pipelines import Outside, config, run
from tidelog import Job, Replayable, Stream
from tidelog.storage.memory import MemoryStore

RECORDS = 4000
SHIFT = 10_000_000


def plus(a: int, b: int) -> int:
    return a + b


def one(_: Any) -> int:
    return 1


@pytest.mark.parametrize("parallelism", [1, 2])
def test_an_input_that_ends_does_not_bring_the_first_watermark_to_the_second(
    parallelism: int,
) -> None:
    """The first times are far ahead of the second: their watermark would make all late."""
    job, sink = Job("twice"), Outside()

    def input(name: str, records: range) -> Stream:
        stream = job.source(Replayable(records), name=name)
        return stream.event_time(lambda n: n + SHIFT, name=f"{name}-received")

    short, long = input("short", range(0, 2)), input("long", range(0, RECORDS))
    both = short.union(long).map(lambda n: n)
    again = both.event_time(lambda n: n, name="created")
    again.key_by(lambda _: "all").window(100, value_of=one, combine=plus).sink(sink)
    run(job, MemoryStore(), config(parallelism=parallelism))
    assert sum(count for *_, count in sink.records) == RECORDS + 2


@pytest.mark.parametrize("parallelism", [1, 2])
def test_windows_of_windows_follow_a_watermark_each(parallelism: int) -> None:
    job, sink = Job("twice"), Outside()
    timed = job.source(Replayable(range(RECORDS))).event_time(lambda n: n)
    tens = timed.key_by(lambda n: n % 2).window(10, value_of=one, combine=plus, name="tens")
    again = tens.event_time(lambda fired: fired[1], max_delay_ms=2000, name="of-windows")
    again.key_by(lambda _: "all").window(
        1000, value_of=lambda fired: fired[2], combine=plus, name="thousands"
    ).sink(sink)
    run(job, MemoryStore(), config(parallelism=parallelism))
    assert sorted(sink.records) == [("all", start, 1000) for start in range(0, RECORDS, 1000)]
