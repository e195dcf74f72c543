"""Jobs with known rates on the real runtime in virtual time; what they leave in a store, and what
is measured of it with the engine of this process.

Sources, tasks, write buffers, uploader, checkpoints and materializations are the real ones; every
figure that a test expects follows from the constants here.
"""

import asyncio
from collections.abc import Mapping
from functools import cache
from random import Random
from typing import Any, Final

from tests.support.clock import VirtualClock, in_virtual_time
from tests.support.jobs import contents, store_of
from tests.unit.verify.stores import engine_on
from tidelog import Sliding
from tidelog.checkpoint.config import CheckpointConfig
from tidelog.connectors.program import ForeachSink
from tidelog.cost.measured.analysis import measure
from tidelog.cost.measured.report import OperatorReport, OverheadReport
from tidelog.materialize.schedule import MaterializeConfig
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.source import Source, SplitReader
from tidelog.storage.memory import MemoryStore

TICK_S: Final = 0.1
CHECKPOINT_S: Final = 1.0
INTERVAL_S: Final = 20.0
SECONDS: Final = 90.0
"""How long a job runs: four materializations of each table."""
PER_S: Final = 40
"""Records a second that the jobs with windows read."""
AGGREGATED_PER_S: Final = 400
RETAIN: Final = 70
"""Checkpoints that are kept: those in which windows open and fire alike."""
KEYS: Final = 1_000
"""Of the aggregate: a flush a second finds a part of them changed."""
SLIDE_MS: Final = 2_000


class Metered(Source):
    """So many records a second of the job's clock: (number, time in milliseconds)."""

    def __init__(self, clock: VirtualClock, per_s: int) -> None:
        self.clock = clock
        self.per_s = per_s

    def discover(self) -> list[str]:
        return ["all"]

    def open(self, split: str, position: Any) -> "MeteredReader":
        return MeteredReader(self, position or 0)


class MeteredReader(SplitReader):
    delay_s = TICK_S

    def __init__(self, source: Metered, position: int) -> None:
        self._source = source
        self._idle = False
        self.position = position

    def read(self) -> list[Any] | None:
        self._idle = not self._idle
        if self._idle:
            return []
        now = self._source.clock.monotonic()
        if now >= SECONDS:
            return None
        first, self.position = self.position, int(now * self._source.per_s)
        return [(number, int(now * 1000)) for number in range(first, self.position)]


def aggregate(clock: VirtualClock) -> Job:
    """Sums per key; which keys come is drawn, so the write buffer combines some of the updates."""
    rng = Random(5)
    job = Job("aggregate")
    source = job.source(Metered(clock, AGGREGATED_PER_S), parallelism=1)
    keyed = source.key_by(lambda record: rng.randrange(KEYS))
    summed = keyed.aggregate(lambda _: rng.random(), lambda a, b: a + b, name="sum")
    summed.sink(ForeachSink(lambda _: None))
    return job


def windows(clock: VirtualClock, per_record: int) -> Job:
    """Sliding windows, `per_record` of which hold a record; every record has a key of its own.

    Keys and values are random, so that the log compresses about as well as real ones.
    """
    rng = Random(7)
    source = Metered(clock, PER_S)
    return _windows(source, lambda: rng.getrandbits(62), rng, per_record * SLIDE_MS, SLIDE_MS)


def few_windows(clock: VirtualClock) -> Job:
    """Tumbling windows of the keys of the aggregate, which most flushes find changed."""
    rng = Random(7)
    source = Metered(clock, AGGREGATED_PER_S)
    return _windows(source, lambda: rng.randrange(KEYS), rng, 10 * SLIDE_MS, 10 * SLIDE_MS)


def _windows(source: Metered, key: Any, rng: Random, size_ms: int, slide_ms: int) -> Job:
    job = Job("windows")
    timed = job.source(source, parallelism=1).event_time(lambda record: record[1])
    counted = (
        timed.key_by(lambda _: key())
        .window(Sliding(size_ms, slide_ms))
        .aggregate(lambda _: rng.random(), lambda a, b: a + b)
    )
    counted.sink(ForeachSink(lambda _: None))
    return job


@cache
def left_by(job_of: Any, *arguments: Any) -> Mapping[str, bytes]:
    """What a job leaves in its store."""
    clock, store = VirtualClock(), MemoryStore()
    config = JobConfig(
        parallelism=2,
        key_groups=16,
        table="memory",
        retain=RETAIN,
        checkpoint=CheckpointConfig(interval=CHECKPOINT_S),
        materialize=MaterializeConfig(interval=INTERVAL_S),
    )
    effects = in_virtual_time(3, clock)
    asyncio.run(JobRunner(job_of(clock, *arguments), store, config, effects).run())
    return contents(store)


def measured(objects: Mapping[str, bytes]) -> OverheadReport:
    """The report on a store with these objects."""
    store = store_of(objects)
    return asyncio.run(measure(store, engine_on(store)))


def operator(report: OverheadReport, id: str) -> OperatorReport:
    return next(each for each in report.operators if each.id == id)
