"""Watermarks belong to splits: what counts depends neither on parallelism nor on reading order."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from tests.support.depth import one_by_one
from tests.support.pipelines import Outside, config, run
from tidelog import Job, JsonLines, KeyedStream, Replayable, Stream
from tidelog.errors import UserFunctionError
from tidelog.storage.memory import MemoryStore

HOUR_MS = 3_600_000
WINDOW_MS = 600_000
SERVERS = ("east", "west")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two servers' logs of one hour: a record a second each, up to 4 s out of order."""
    for server in SERVERS:
        times = [second * 1000 - (second % 3) * 2000 for second in range(3600)]
        lines = (json.dumps({"server": server, "time_ms": time}) for time in times)
        (tmp_path / f"{server}.json").write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


def expected() -> Counter[tuple[str, int]]:
    times = [second * 1000 - (second % 3) * 2000 for second in range(3600)]
    return Counter((server, time - time % WINDOW_MS) for server in SERVERS for time in times)


def counted(stream: Stream, sink: Outside) -> None:
    keyed: KeyedStream = stream.key_by(attrgetter("server"))
    windows = keyed.window(WINDOW_MS, value_of=lambda _: 1, combine=lambda a, b: a + b)
    windows.sink(sink)


def timed(stream: Stream, name: str = "event-time") -> Stream:
    return stream.event_time(attrgetter("time_ms"), max_delay_ms=5000, name=name)


def straight(job: Job, logs: Path, sink: Outside) -> None:
    counted(timed(job.source(JsonLines(logs))), sink)


def behind_stateless(job: Job, logs: Path, sink: Outside) -> None:
    read = job.source(JsonLines(logs)).filter(lambda _: True).flat_map(lambda r: [r])
    counted(timed(read.map(lambda r: r)), sink)


def beside_another_use(job: Job, logs: Path, sink: Outside) -> None:
    """The source's records go to two operators, so `event_time` runs in a task of its own."""
    read = job.source(JsonLines(logs))
    read.map(lambda r: r, name="copy").sink(Outside(), name="copies")
    counted(timed(read), sink)


def behind_a_source_of_one(job: Job, logs: Path, sink: Outside) -> None:
    counted(timed(job.source(JsonLines(logs), parallelism=1)), sink)


def behind_rebalance(job: Job, logs: Path, sink: Outside) -> None:
    counted(timed(job.source(JsonLines(logs)).rebalance().map(lambda r: r)), sink)


def behind_union(job: Job, logs: Path, sink: Outside) -> None:
    streams = [job.source(JsonLines(logs, f"{server}.json"), name=server) for server in SERVERS]
    counted(timed(streams[0].union(streams[1])), sink)


def behind_rules(job: Job, logs: Path, sink: Outside) -> None:
    rules = job.source(Replayable(["rule"]), name="told")
    ruled = job.source(JsonLines(logs)).with_broadcast(
        rules, on_rule=lambda rule, known: None, on_record=lambda record, known: [record]
    )
    counted(timed(ruled), sink)


SHAPES: Sequence[Callable[[Job, Path, Outside], None]] = (
    straight,
    behind_stateless,
    beside_another_use,
    behind_a_source_of_one,
    behind_rebalance,
    behind_union,
    behind_rules,
)


@one_by_one(shape=SHAPES, parallelism=[3, 2, 1])
def test_every_record_of_two_logs_counts_at_every_parallelism(
    shape: Callable[[Job, Path, Outside], None], parallelism: int, logs: Path
) -> None:
    sink, job = Outside(), Job("logs")
    shape(job, logs, sink)
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
        read = built.source(_Slowly(logs)).map(check)
        counted(timed(read), sink)
        return built

    with pytest.raises(UserFunctionError, match="broken"):
        run(job(breaks=True), store, config(parallelism=parallelisms[0]))
    result = run(job(breaks=False), store, config(parallelism=parallelisms[1]), seed=2)
    assert result.restored_slot is not None, "it resumed"
    assert {(key, start): count for key, start, count in sink.records} == expected()


class _Slowly(JsonLines):
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


def test_a_time_that_is_no_int_is_refused() -> None:
    job = Job("floats")
    stream = job.source(Replayable([1.5])).event_time(lambda r: r)
    stream.key_by(str).window(10, value_of=lambda _: 1, combine=max).sink(Outside())
    with pytest.raises(UserFunctionError, match=r"event-time.*milliseconds as int|milliseconds"):
        run(job, MemoryStore())
