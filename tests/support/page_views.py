"""Page views counted by application: partitions with offsets, read by a script, into one consumer.

A partition stops at its record `goes_on` until a checkpoint's barrier has passed through it; one
that is `slow` lets its barrier go only after the consumer had time to handle all that the others
offer. So a test decides what is read between the barriers of one checkpoint.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, ParamSpec, TypeVar

from tests.support.clock import VirtualClock
from tests.support.jobs import contents, store_of
from tests.support.pipelines import Outside, config
from tidelog.effects import Effects
from tidelog.errors import UserFunctionError
from tidelog.runtime.config import Mode
from tidelog.runtime.graph import Job, Stream
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.source import Source, SplitReader
from tidelog.storage.memory import MemoryStore

P = ParamSpec("P")
T = TypeVar("T")

PORTION = 500
SLOW_S = 30.0


@dataclass(frozen=True)
class Partition:
    """The application of each view, by offset."""

    views: tuple[str, ...]
    goes_on: int
    """Records before the first barrier."""
    slow: bool = False


@dataclass
class Run:
    """One incarnation of the job; with `breaks` its sources fail after the first checkpoint."""

    partitions: tuple[Partition, ...]
    mode: Mode
    breaks: bool = False
    reads: bool = True
    """Off: every partition ends where it was resumed."""
    resumed_at: dict[int, int] = field(default_factory=dict)
    runner: JobRunner | None = None

    def counts(self, store: MemoryStore, seed: int) -> dict[str, int]:
        """Run; returns what the consumer ended with."""
        sink, clock = Outside(), VirtualClock()
        effects = Effects(clock, Random(seed), _SlowReads(clock))
        settings = config(mode=self.mode, parallelism=1, channel_buffers=16)
        self.runner = JobRunner(self._job(sink), store, settings, effects)
        asyncio.run(self.runner.run())
        return dict(sink.records)

    def _job(self, sink: Outside) -> Job:
        job = Job("page-views")
        sources = [job.source(_Reading(self, n), name="in") for n in range(len(self.partitions))]
        views: Stream = sources[0].union(*sources[1:]) if sources[1:] else sources[0].rebalance()
        counted = views.key_by(lambda name: name).aggregate(lambda _: 1, lambda a, b: a + b)
        counted.sink(sink)
        return job

    def under_way(self) -> bool:
        """Whether a checkpoint is."""
        driver = self.runner.driver if self.runner else None
        return driver is not None and driver.coordinator.in_progress is not None

    def completed(self) -> int:
        driver = self.runner.driver if self.runner else None
        return driver.metrics.completed if driver is not None else 0


class _Reading(Source):
    """One partition as a source of its own."""

    blocking = True

    def __init__(self, run: Run, number: int) -> None:
        self.run = run
        self.number = number

    def discover(self) -> list[str]:
        return [f"partition-{self.number}"]

    def open(self, split: str, position: Any) -> "_Reader":
        self.run.resumed_at[self.number] = position or 0
        return _Reader(self.run, self.run.partitions[self.number], position or 0)


class _Reader(SplitReader):
    delay_s = 0.1

    def __init__(self, run: Run, partition: Partition, position: int) -> None:
        self.position = position
        self._run = run
        self._partition = partition
        self._seen = False
        self._passed = not run.breaks

    @property
    def dawdles(self) -> bool:
        """The next read takes long, and a barrier waits for its end."""
        waits = self.position == self._partition.goes_on and not self._passed
        return self._partition.slow and waits

    def read(self) -> list[Any] | None:
        views, end = self._partition.views, len(self._partition.views)
        if not self._run.reads:
            return None
        if self._run.breaks and self._run.completed():
            raise UserFunctionError("the source", found="the break", action="start again")
        if not self._passed:
            end = self._partition.goes_on
            if self.position == end:
                # A barrier that was seen here goes out before the next read.
                self._passed, self._seen = self._seen, self._run.under_way()
                return []
        read = views[self.position : min(end, self.position + PORTION)]
        self.position += len(read)
        if not read and self._run.breaks:
            return []  # until the break
        return list(read) or None


class _SlowReads:
    """An off-load in which the reads of a slow partition take long at its barrier."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        reader = getattr(function, "__self__", None)
        if isinstance(reader, _Reader) and reader.dawdles:
            await self._clock.sleep(SLOW_S)
        return function(*args, **kwargs)

    def close(self) -> None:
        """Nothing to release."""


@dataclass(frozen=True)
class Outcome:
    """What one checkpoint holds, and what a job counts that resumes from it."""

    offsets: tuple[int, ...]
    counts: dict[str, int]
    resumed: dict[str, int]


def fail_after_a_checkpoint(partitions: tuple[Partition, ...], mode: Mode) -> Outcome:
    """Run until the first checkpoint is complete, fail, look into it, and resume to the end."""
    store = MemoryStore("memory://page-views")
    try:
        Run(partitions, mode, breaks=True).counts(store, seed=1)
    except UserFunctionError:
        pass
    else:
        raise AssertionError("the job was meant to break")
    left = contents(store)
    look = Run(partitions, mode, reads=False)
    counts = look.counts(store_of(left), seed=2)
    offsets = tuple(look.resumed_at[n] for n in range(len(partitions)))
    return Outcome(offsets, counts, Run(partitions, mode).counts(store_of(left), seed=3))
