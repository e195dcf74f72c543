"""Page views counted by application: partitions with offsets, read by a script, into one consumer.

A partition stops at its record `goes_on` until a checkpoint's barrier has passed through it; one
that is `slow` lets its barrier go only after the consumer had time to handle all that the others
offer. So a test decides what is read between the barriers of one checkpoint.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.support.clock import VirtualClock, in_virtual_time
from tests.support.jobs import contents, store_of
from tests.support.pipelines import Outside, completed, config
from tidelog import Job, JobRunner, Source, SplitReader, Stream, UserFunctionError
from tidelog.runtime.channels.messages import Barrier
from tidelog.runtime.config import Mode
from tidelog.runtime.subtasks.incarnation import Incarnation
from tidelog.runtime.tasks.source_task import SourceTask
from tidelog.storage.memory import MemoryStore

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
    reached: set[int] = field(default_factory=set)
    """Slow partitions whose task has heard of the barrier."""
    late: list[asyncio.Task[None]] = field(default_factory=list)
    runner: JobRunner | None = None

    def counts(self, store: MemoryStore, seed: int) -> dict[str, int]:
        """Run; returns what the consumer ended with."""
        sink, clock = Outside(), VirtualClock()
        effects = in_virtual_time(seed, clock)
        settings = config(mode=self.mode, parallelism=1, channel_buffers=16)
        self.runner = _LateBarriers(self, self._job(sink), store, settings, effects)
        asyncio.run(self.runner.run())
        return dict(sink.records)

    def _job(self, sink: Outside) -> Job:
        job = Job("page-views")
        sources = [job.source(_Reading(self, n), name="in") for n in range(len(self.partitions))]
        views: Stream = sources[0].union(*sources[1:]) if sources[1:] else sources[0].rebalance()
        views.key_by(lambda name: name).count().sink(sink)
        return job

    def under_way(self, number: int) -> bool:
        """Whether a checkpoint is, as far as the task of a partition knows."""
        if self.partitions[number].slow:
            return number in self.reached
        incarnation = self.runner.incarnation if self.runner else None
        return incarnation is not None and incarnation.driver.coordinator.in_progress is not None


class _Reading(Source):
    """One partition as a source of its own."""

    def __init__(self, run: Run, number: int) -> None:
        self.run = run
        self.number = number

    def discover(self) -> list[str]:
        return [f"partition-{self.number}"]

    def open(self, split: str, position: Any) -> "_Reader":
        self.run.resumed_at[self.number] = position or 0
        return _Reader(self.run, self.number, position or 0)


class _Reader(SplitReader):
    delay_s = 0.1

    def __init__(self, run: Run, number: int, position: int) -> None:
        self.position = position
        self._run = run
        self._number = number
        self._partition = run.partitions[number]
        self._seen = False
        self._passed = not run.breaks

    def read(self) -> list[Any] | None:
        views, end = self._partition.views, len(self._partition.views)
        if not self._run.reads:
            return None
        if self._run.breaks and self._run.runner and completed(self._run.runner):
            raise UserFunctionError("the source", found="the break", action="start again")
        if not self._passed:
            end = self._partition.goes_on
            if self.position == end:
                # A barrier that was seen here goes out before the next read.
                self._passed, self._seen = self._seen, self._run.under_way(self._number)
                return []
        read = views[self.position : min(end, self.position + PORTION)]
        self.position += len(read)
        if not read and self._run.breaks:
            return []  # until the break
        return list(read) or None


class _LateBarriers(JobRunner):
    """A runner whose call for a barrier takes long to reach the task of a slow partition."""

    def __init__(self, run: Run, *args: Any) -> None:
        super().__init__(*args)
        self._of = run

    async def _supervise(self, incarnation: Incarnation) -> None:
        tasks = incarnation.tasks
        sources = [task for task in tasks if isinstance(task, SourceTask)]
        for number, (task, partition) in enumerate(zip(sources, self._of.partitions, strict=True)):
            if partition.slow and self._of.breaks:
                task.trigger = partial(self._later, task.trigger, number)  # type: ignore[method-assign]
        await super()._supervise(incarnation)

    def _later(self, trigger: Callable[[Barrier], None], number: int, barrier: Barrier) -> None:
        async def later() -> None:
            await self.effects.clock.sleep(SLOW_S)
            trigger(barrier)
            self._of.reached.add(number)

        self._of.late.append(asyncio.ensure_future(later()))


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
