"""Watermarks belong to splits: what counts depends neither on parallelism nor on reading order.

Timers at times before 1970 are timers like all others.

An `event_time` behind another one: each drives what follows it, and nothing else. Its lengths of
time are given as those of windows and joins are.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from tests.support.depth import one_by_one
from tests.support.pipelines import Outside, config, run
from tidelog import IterableSource, Job, JsonLinesSource, StatefulProcessor, Stream, Tumbling
from tidelog.errors import ConfigError, UserFunctionError
from tidelog.runtime.operators.event_time import EventTimeOptions
from tidelog.storage.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("workers")

HOUR_MS = 3_600_000
WINDOW_MS = 600_000
SERVERS = ("east", "west")
TIMES = [second * 1000 - (second % 3) * 2000 for second in range(3600)]
"""Event times in ms of the records of one server: one a second for an hour, up to 4 s out of
order."""


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two servers' logs."""
    for server in SERVERS:
        lines = (json.dumps({"server": server, "time_ms": time}) for time in TIMES)
        (tmp_path / f"{server}.json").write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


def expected() -> Counter[tuple[str, int]]:
    return Counter((server, time - time % WINDOW_MS) for server in SERVERS for time in TIMES)


def counted(stream: Stream, sink: Outside) -> None:
    timed = stream.event_time(attrgetter("time_ms"), max_delay_ms=5000)
    timed.key_by(attrgetter("server")).window(Tumbling(WINDOW_MS)).count().sink(sink)


def beside_another_use(job: Job, logs: Path) -> Stream:
    """The source's records go to two operators, so `event_time` runs in a task of its own."""
    read = job.source(JsonLinesSource(logs))
    read.map(lambda r: r, name="copy").sink(Outside(), name="copies")
    return read


def behind_union(job: Job, logs: Path) -> Stream:
    streams = [
        job.source(JsonLinesSource(logs, f"{server}.json"), name=server) for server in SERVERS
    ]
    return streams[0].union(streams[1])


def behind_rules(job: Job, logs: Path) -> Stream:
    rules = job.source(IterableSource(["rule"]), name="told")
    return job.source(JsonLinesSource(logs)).with_broadcast(
        rules, on_rule=lambda rule, known: None, on_record=lambda record, known: [record]
    )


Shape = Callable[[Job, Path], Stream]
SHAPES: dict[str, Shape] = {
    "straight": lambda job, logs: job.source(JsonLinesSource(logs)),
    "behind stateless": lambda job, logs: (
        job.source(JsonLinesSource(logs))
        .filter(lambda _: True)
        .flat_map(lambda r: [r])
        .map(lambda r: r)
    ),
    "beside another use": beside_another_use,
    "behind a source of one": lambda job, logs: job.source(JsonLinesSource(logs), parallelism=1),
    "behind rebalance": lambda job, logs: (
        job.source(JsonLinesSource(logs)).rebalance().map(lambda r: r)
    ),
    "behind union": behind_union,
    "behind rules": behind_rules,
}


@one_by_one(shape=SHAPES, parallelism=[3, 2, 1])
def test_every_record_of_two_logs_counts_at_every_parallelism(
    shape: Shape, parallelism: int, logs: Path
) -> None:
    sink, job = Outside(), Job("logs")
    counted(shape(job, logs), sink)
    run(job, MemoryStore(), config(parallelism=parallelism))
    assert {(key, start): count for key, start, count in sink.records} == expected()
    assert sum(count for *_, count in sink.records) == 7200


@pytest.mark.parametrize("parallelisms", [(1, 3), (3, 1)])
def test_every_record_counts_after_a_failure_and_a_rescale(
    parallelisms: tuple[int, int], logs: Path
) -> None:
    sink, store = Outside(), MemoryStore()

    def job(breaks: bool) -> Job:
        def check(record: Any) -> Any:
            if breaks and record.time_ms > HOUR_MS // 2:
                raise ValueError("broken")
            return record

        built = Job("logs")
        counted(built.source(_Slowly(logs)).map(check), sink)
        return built

    with pytest.raises(UserFunctionError, match="broken"):
        run(job(breaks=True), store, config(parallelism=parallelisms[0]))
    result = run(job(breaks=False), store, config(parallelism=parallelisms[1]), seed=2)
    assert result.restored_checkpoint is not None, "it resumed"
    assert {(key, start): count for key, start, count in sink.records} == expected()


class _Slowly(JsonLinesSource):
    """Small portions with a pause after each, so that checkpoints lie between."""

    blocking = False

    def __init__(self, path: Path) -> None:
        super().__init__(path, chunk_bytes=4000)

    def open(self, split: str, position: Any) -> Any:
        reader = super().open(split, position)
        read, paused = reader.read, [False]

        def slowly() -> Any:
            paused[0] = not paused[0]
            return [] if paused[0] else read()

        reader.read = slowly  # type: ignore[method-assign]
        return reader


class Reminder(StatefulProcessor):
    """A timer two seconds after every row; says when it fires and what the watermark is then."""

    def init(self, handle: Any) -> None:
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        for row in rows:
            self.handle.registerTimer(row + 2_000)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, info: Any) -> Iterator[Any]:
        yield info.getExpiryTimeInMs()


def test_timers_at_negative_times_fire_once_and_in_their_order() -> None:
    times = list(range(-20_000, 10_000, 1_000))
    sink, job = Outside(), Job("timers")
    timed = job.source(IterableSource(times)).event_time(lambda time: time)
    timed.key_by(lambda _: "all").transform_with_state(Reminder, time_mode="event").sink(sink)
    run(job, MemoryStore())
    assert sink.records == [time + 2_000 for time in times]


RECORDS = 4000
SHIFT = 10_000_000


@pytest.mark.parametrize("parallelism", [1, 2])
def test_an_input_that_ends_does_not_bring_the_first_watermark_to_the_second(
    parallelism: int,
) -> None:
    """The first times are far ahead of the second: their watermark would make all late."""
    job, sink = Job("twice"), Outside()

    def input(name: str, records: range) -> Stream:
        stream = job.source(IterableSource(records), name=name)
        return stream.event_time(lambda n: n + SHIFT, name=f"{name}-received")

    short, long = input("short", range(0, 2)), input("long", range(0, RECORDS))
    both = short.union(long).map(lambda n: n)
    again = both.event_time(lambda n: n, name="created")
    again.key_by(lambda _: "all").window(Tumbling(100)).count().sink(sink)
    run(job, MemoryStore(), config(parallelism=parallelism))
    assert sum(count for *_, count in sink.records) == RECORDS + 2


@pytest.mark.parametrize("length", [2_000, "2s", timedelta(seconds=2)])
def test_a_length_of_time_is_milliseconds_a_timedelta_or_a_text(length: Any) -> None:
    assert EventTimeOptions.of(length, length, length) == EventTimeOptions(2_000, 2_000, 2_000)


@pytest.mark.parametrize(
    "given", [{"max_delay_ms": -1}, {"max_ahead_ms": "soon"}, {"idle_after_ms": 0}]
)
def test_what_is_no_length_of_time_is_refused_by_its_name(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(given))):
        Job("late").source(IterableSource([1])).event_time(lambda ms: ms, **given)
