"""Records of any size: what is made of few or many is handed on in buffers of limited size."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidelog import (
    Callback,
    Effects,
    Job,
    JobConfig,
    JobRunner,
    Rate,
    Replayable,
    Stream,
    open_store,
)
from tidelog.runtime.source import Source

MIB = 1 << 20
BODY = 64 << 10
COUNT = 400


def run(job: Job, directory: Path, **settings: Any) -> None:
    async def main() -> None:
        effects = Effects()
        store = open_store(str(directory / "store"), effects)
        await JobRunner(job, store, JobConfig(work_dir=directory, **settings), effects).run()
        effects.offload.close()

    asyncio.run(main())


def test_a_rare_large_record_is_a_buffer_alone(tmp_path: Path) -> None:
    """Wherever it stands among small ones, in whatever it is nested."""
    large = "x" * 3 * MIB
    shapes: list[Callable[[int], Any]] = [
        lambda n: large if n == 777 else "small",
        lambda n: (n, large.encode() if n == 1313 else b"small"),
        lambda n: {"n": [n, {"body": (large if n == 31 else "small",)}]},
    ]
    for at, shape in enumerate(shapes):
        buffers: list[list[Any]] = []
        job = Job("rare")
        made = job.source(Rate(None, limit=1)).flat_map(
            lambda _, shape=shape: [shape(n) for n in range(2000)]
        )
        seen = made.rebalance().map_batches(
            lambda records, buffers=buffers: [buffers.append(records)]
        )
        seen.sink(Callback(lambda _: None))
        run(job, tmp_path / str(at), parallelism=2)
        assert sum(map(len, buffers)) == 2000
        (holding,) = [records for records in buffers if large in str(records)]
        assert len(holding) == 1


def by_flat_map(stream: Stream) -> Stream:
    return stream.filter(lambda n: n == 0).flat_map(lambda _: bodies())


def bodies() -> Iterator[bytes]:
    for _ in range(COUNT):
        yield bytes(BODY)


def by_aggregate(stream: Stream) -> Stream:
    kept = stream.key_by(lambda n: n).aggregate(lambda _: bytes(BODY), lambda a, _: a)
    return kept.map(lambda pair: pair[1])


def by_windows(stream: Stream) -> Stream:
    timed = stream.event_time(lambda _: 1).key_by(lambda n: n)
    return timed.window_records(10, function=lambda *_: bytes(BODY))


@pytest.mark.parametrize("build", [by_flat_map, by_aggregate, by_windows])
def test_what_an_operator_makes_waits_in_buffers_of_a_few_records_when_these_are_large(
    build: Callable[[Stream], Stream], tmp_path: Path
) -> None:
    job = Job("large")
    sizes = buffers_of(build(job.source(Rate(None, limit=COUNT))), job, tmp_path)
    assert sum(sizes) == COUNT * BODY and max(sizes) <= 2 * MIB


SOURCES = {
    "iterable": Replayable(bodies),
    "waiting": Replayable(bodies, blocking=True),
    "rate": Rate(None, limit=COUNT, make=lambda _: bytes(BODY)),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_what_a_source_reads_at_once_is_little_when_records_are_large(
    source: Source, tmp_path: Path
) -> None:
    job = Job("large")
    sizes = buffers_of(job.source(source), job, tmp_path)
    assert sum(sizes) == COUNT * BODY and max(sizes) <= 2.5 * MIB


def buffers_of(made: Stream, job: Job, directory: Path) -> list[int]:
    """Runs the job; the bytes of every buffer that came out of the last operator."""
    buffers: list[int] = []

    def counted(records: list[Any]) -> list[Any]:
        buffers.append(sum(map(len, records)))
        return []

    made.map_batches(counted).sink(Callback(lambda _: None))
    run(job, directory)
    return buffers
