"""One budget bounds the memory of all states, subtasks and queues, whatever rows are like.

Records of any size: what is made of few or many is handed on in buffers of limited size.
"""

import asyncio
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.depth import more_in_depth, only_in_depth
from tidelog import (
    CheckpointConfig,
    ForeachSink,
    IterableSource,
    Job,
    JobConfig,
    JobRunner,
    RateSource,
    Session,
    Sliding,
    Source,
    Stream,
    Tumbling,
    open_store,
    status_of,
)
from tidelog.effects import Effects
from tidelog.runtime.memory import LEAST_MEMORY
from tidelog.runtime.status.status import MemoryStatus

MIB = 1 << 20
BATCH_ROWS = 4096
"""What a rate source reads at once: it may be on top of the budget."""


def run(job: Job, directory: Path, config: JobConfig) -> list[MemoryStatus]:
    """What the status said of memory after each step of the job's tasks."""
    seen: list[MemoryStatus] = []

    async def main() -> None:
        effects = Effects()
        store = open_store(str(directory / "store"), effects=effects)
        runner = JobRunner(job, store, config, effects)
        running = asyncio.ensure_future(runner.run())
        while not running.done():
            await asyncio.sleep(0)
            if runner.running:
                seen.append(status_of(runner).memory)
        effects.offload.close()
        running.result()

    asyncio.run(main())
    return seen


def counting(rows: int, value: bytes, results: dict[int, int]) -> Job:
    """Rows of one size, each put twice; the lengths of their values come out."""
    job = Job("large-rows")
    source = RateSource(None, limit=2 * rows, make=lambda n: n % rows)
    keyed = job.source(source).key_by(lambda n: n)
    rows_of = keyed.aggregate(lambda n: value, lambda a, b: a + b[:1])
    rows_of.sink(ForeachSink(lambda record: results.__setitem__(record[0], len(record[1]))))
    return job


@pytest.mark.parametrize("parallelism", more_in_depth([3], [1, 3]))
def test_large_rows_stay_within_the_budget_but_for_one_batch(
    tmp_path: Path, parallelism: int
) -> None:
    rows, size, budget = 12_500, 4096, LEAST_MEMORY
    results: dict[int, int] = {}
    config = JobConfig(
        parallelism=parallelism,
        memory=budget,
        checkpoint=CheckpointConfig(interval=0.5),
        work_dir=tmp_path,
    )
    seen = run(counting(rows, bytes(size), results), tmp_path, config)
    assert results == dict.fromkeys(range(rows), size + 1)
    batch = BATCH_ROWS * size
    assert rows * size > budget + batch
    assert max(status.used_bytes for status in seen) <= budget + batch
    assert max(status.rows_bytes for status in seen) <= budget / 4 + 2 * batch
    assert {status.budget_bytes for status in seen} == {budget}
    assert max(status.memtables_bytes for status in seen) > 0


def test_the_records_of_one_key_of_a_join_stay_within_the_budget(tmp_path: Path) -> None:
    """Each later record of the other stream reads all of them, many at a time."""
    rows, size, budget = 12_500, 4096, LEAST_MEMORY
    pairs: Counter[int] = Counter()
    job = Job("hot-key")
    left, right = (
        job.source(source, name=name).event_time(lambda _: 5).key_by(lambda _: "hot")
        for name, source in {
            "left": RateSource(None, limit=rows, make=lambda n: bytes(size) + n.to_bytes(4, "big")),
            "right": RateSource(3, limit=6, make=lambda n: n),
        }.items()
    )
    joined = left.join(right, (0, 0)).map(lambda pair: pair[1])
    joined.sink(ForeachSink(lambda number: pairs.update([number])))
    config = JobConfig(memory=budget, checkpoint=CheckpointConfig(interval=0.5), work_dir=tmp_path)
    seen = run(job, tmp_path, config)
    assert pairs == Counter(dict.fromkeys(range(6), rows))
    batch = BATCH_ROWS * size
    assert rows * size > budget + batch
    assert max(status.used_bytes for status in seen) <= budget + batch


def test_caches_of_idle_subtasks_make_room_for_those_that_work(tmp_path: Path) -> None:
    """Keys come in order: each subtask in turn holds rows of its own, then hears of nothing."""
    results: dict[int, int] = {}
    job = Job("in-turn")
    keyed = job.source(RateSource(None, limit=40_000, make=lambda n: n)).key_by(
        lambda n: n // 10_000
    )
    lengths = keyed.aggregate(lambda n: [bytes(900)], lambda a, b: [*a[-500:], *b])
    lengths.sink(ForeachSink(lambda record: results.__setitem__(record[0], len(record[1]))))
    config = JobConfig(parallelism=4, memory=LEAST_MEMORY, work_dir=tmp_path)
    seen = run(job, tmp_path, config)
    assert results == dict.fromkeys(range(4), 501)
    assert max(status.rows_bytes for status in seen) <= LEAST_MEMORY


def test_records_between_many_tasks_share_a_part_of_the_budget(tmp_path: Path) -> None:
    job, lengths = Job("between"), []
    made = job.source(RateSource(None, limit=40)).flat_map(lambda n: [(n, k) for k in range(50)])
    large = made.map(lambda pair: (*pair, bytes(4096))).key_by(lambda record: record[1])
    kept = large.aggregate(lambda record: len(record[2]), lambda a, b: a + b)
    kept.sink(ForeachSink(lambda pair: lengths.append(pair[1])))
    config = JobConfig(parallelism=4, memory=LEAST_MEMORY, work_dir=tmp_path)
    seen = run(job, tmp_path, config)
    assert lengths == [40 * 4096] * 50
    assert 0 < max(status.channels_bytes for status in seen) <= LEAST_MEMORY / 16


@pytest.mark.parametrize("pause_ms", [100, 5], ids=["many-sessions", "a-long-session"])
def test_sessions_of_one_key_stay_within_the_budget(tmp_path: Path, pause_ms: int) -> None:
    """As many sessions as records, or one that keeps them all; open until the data ends."""
    records, fired = more_in_depth(60_000, 400_000), list[tuple[int, int]]()
    job = Job("one-key")
    source = job.source(RateSource(None, limit=records, make=lambda n: n * pause_ms))
    timed = source.event_time(lambda time: time, max_delay_ms=pause_ms * records)
    windows = timed.key_by(lambda _: "key").window(Session(10))
    if pause_ms > 10:
        sizes = windows.count().map(lambda session: (session[2] - session[1], session[3]))
    else:
        sizes = windows.records(lambda key, start, end, times: (end - start, len(times)))
    sizes.sink(ForeachSink(fired.append))
    seen = run(job, tmp_path, JobConfig(parallelism=1, memory=LEAST_MEMORY, work_dir=tmp_path))
    whole = (records - 1) * pause_ms + 10
    assert fired == ([(10, 1)] * records if pause_ms > 10 else [(whole, records)])
    assert max(status.rows_bytes for status in seen) <= LEAST_MEMORY / 4 + MIB


BODY = 64 << 10
COUNT = 100


def bodies() -> Iterator[bytes]:
    for _ in range(COUNT):
        yield bytes(BODY)


BUILDS: dict[str, Callable[[Stream], Stream]] = {
    "flat_map": lambda stream: stream.filter(lambda n: n == 0).flat_map(lambda _: bodies()),
    "aggregate": lambda stream: (
        stream.key_by(int).max(lambda _: bytes(BODY)).map(lambda pair: pair[1])
    ),
    "windows": lambda stream: (
        stream.event_time(lambda _: 1)
        .key_by(int)
        .window(Tumbling(10))
        .records(lambda *_: bytes(BODY))
    ),
}


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_what_an_operator_makes_waits_in_buffers_of_a_few_records_when_these_are_large(
    build: Callable[[Stream], Stream], tmp_path: Path
) -> None:
    job = Job("large")
    sizes = buffers_of(build(job.source(RateSource(None, limit=COUNT))), job, tmp_path)
    assert sum(sizes) == COUNT * BODY and max(sizes) <= 2 * MIB


SOURCES = {
    "iterable": IterableSource(bodies),
    "waiting": IterableSource(bodies, blocking=True),
    "rate": RateSource(None, limit=COUNT, make=lambda _: bytes(BODY)),
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

    made.map_batches(counted).sink(ForeachSink(lambda _: None))
    run(job, directory, JobConfig(work_dir=directory))
    return buffers


@only_in_depth("test_sessions_of_one_key_stay_within_the_budget")
def test_windows_that_overlap_much_stay_within_the_budget(tmp_path: Path) -> None:
    """A record is in 3,600 windows, each a row of its own as each is emitted when it changes."""
    records, counted = 12, Counter[int]()
    job = Job("overlapping")
    timed = job.source(RateSource(None, limit=records, make=lambda n: n)).event_time(
        lambda n: n * 1000
    )
    windows = timed.key_by(lambda n: n).window(Sliding("1h", "1s"), emit="updates")
    counts = windows.aggregate(lambda n: bytes(1000), max)
    counts.sink(ForeachSink(lambda row: counted.update([row[0]])))
    tracemalloc.start()
    seen = run(job, tmp_path, JobConfig(parallelism=1, memory=LEAST_MEMORY, work_dir=tmp_path))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert counted == Counter(dict.fromkeys(range(records), 3600))
    assert counted.total() * 1000 > LEAST_MEMORY, "the values alone"
    assert max(status.used_bytes for status in seen) <= LEAST_MEMORY
    assert peak_bytes <= 2 * LEAST_MEMORY, "with all that the status does not count"
