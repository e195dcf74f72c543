"""Plans: a random job as a value, and what it must write.

Invariants: a plan is decided by its random source alone; every incarnation builds the same
graph from it; `expected` is computed without tidelog.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from tests.simulator.jobs.job_plan import JobPlan
from tests.simulator.jobs.source import Arrivals, Arriving, Record
from tests.simulator.jobs.stages import (
    Double,
    EventTime,
    Everywhere,
    InBuckets,
    Numbers,
    Raise,
    RecordWindows,
    Recount,
    Spread,
    Stage,
    Thin,
    Totals,
    Windows,
)
from tidelog.runtime.graph import Job, Stream
from tidelog.runtime.sink import Sink

DISORDER_MS: Final = 400
STREAM_S: Final = 5.0
"""Records arrive within this many virtual seconds, unless they are there from the start."""


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """One source and the stages right behind it."""

    name: str
    splits: dict[str, Arriving]
    portion: int
    pause: float
    stages: tuple[Stage, ...]
    blocking: bool
    """Reads take time, so that barriers of different sources drift apart."""
    parallelism: int | None = None


@dataclass(frozen=True, slots=True)
class Branch:
    """What happens to the union of all sources, and the sink at its end."""

    stages: tuple[Stage, ...]
    sink: str


@dataclass(frozen=True, slots=True)
class Plan(JobPlan):
    """A job of a few sources, a union, and branches of stages behind it."""

    sources: tuple[SourcePlan, ...]
    branches: tuple[Branch, ...]
    parallelism: int

    def job(self, now: Callable[[], float], sink: Callable[[str], Sink]) -> Job:
        """The job, built anew for each incarnation."""
        job = Job("simulated", record_types=(Record,))
        streams = []
        for source in self.sources:
            arrivals = Arrivals(
                source.splits, source.portion, source.pause, now, blocking=source.blocking
            )
            stream = job.source(arrivals, name=source.name, parallelism=source.parallelism)
            streams.append(_through(stream, source.stages))
        merged = streams[0].union(*streams[1:]) if len(streams) > 1 else streams[0]
        for branch in self.branches:
            _through(merged, branch.stages).sink(sink(branch.sink), name=branch.sink)
        return job

    def expected(self) -> dict[str, Counter[Any]]:
        """What each sink must hold in the end."""
        merged: list[Any] = []
        for source in self.sources:
            records: list[Any] = [r for split in source.splits.values() for r in split.records]
            merged += self._evaluate(records, source.stages)
        return {b.sink: Counter(self._evaluate(merged, b.stages)) for b in self.branches}

    def _evaluate(self, records: list[Any], stages: tuple[Stage, ...]) -> list[Any]:
        for stage in stages:
            records = stage.evaluate(records, self.parallelism)
        return records

    @property
    def rescalable(self) -> bool:
        """Whether the job's output is the same at every parallelism."""
        return not any(isinstance(stage, Everywhere) for s in self.sources for stage in s.stages)

    def describe(self) -> str:
        """The plan in a line."""
        sources = ", ".join(f"{s.name}{_names(s.stages)}" for s in self.sources)
        branches = ", ".join(f"{_names(b.stages)}" for b in self.branches)
        return f"parallelism {self.parallelism}; {sources}; {branches}"


def _through(stream: Stream, stages: tuple[Stage, ...]) -> Stream:
    for stage in stages:
        stream = stage.apply(stream)
    return stream


def _names(stages: tuple[Stage, ...]) -> str:
    return "".join(f" > {type(stage).__name__}" for stage in stages)


def make_plan(rng: Random) -> Plan:
    """A random plan."""
    timed = rng.random() < 0.4
    keys = _Keys(rng)
    sources = tuple(_source(rng, number, keys, timed) for number in range(rng.choice((1, 1, 2, 3))))
    branches = [_branch(rng, number, timed) for number in range(rng.choice((1, 1, 2)))]
    if rng.random() < 0.3:
        branches.append(Branch((), "as-they-are"))
    return Plan(sources, tuple(branches), rng.choice((1, 2, 2, 3, 4)))


class _Keys:
    """Keys of which a few are hot."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._count = rng.choice((1, 5, 12, 30))
        self._skew = rng.choice((0.3, 1.0, 3.0))

    def draw(self) -> str:
        return f"k{int(self._count * self._rng.random() ** self._skew)}"


def _source(rng: Random, number: int, keys: _Keys, timed: bool) -> SourcePlan:
    # One split in the order of time: only then is no record late, however buffers interleave.
    names = ["only"] if timed else [f"split-{n}" for n in range(rng.choice((0, 1, 1, 2, 3, 3)))]
    length = rng.choice((0, 10, 40, 60, 80))
    there_from_the_start = rng.random() < 0.25
    splits = {}
    for at, name in enumerate(names):
        first = 1_000_000 * number + 10_000 * at
        splits[name] = _split(rng, first, length, keys, there_from_the_start)
    stages: list[Stage] = [EventTime(DISORDER_MS)] if timed else []
    for stage in (Raise(), Thin(), Double(), Spread()):
        if rng.random() < 0.2:
            stages.append(stage)
    if rng.random() < 0.1:
        stages.append(Everywhere())
    portion, pause = rng.choice((3, 10, 50)), rng.choice((0.03, 0.1, 0.3))
    blocking = rng.random() < 0.5
    return SourcePlan(f"source-{number}", splits, portion, pause, tuple(stages), blocking)


def _split(rng: Random, first: int, length: int, keys: _Keys, at_once: bool) -> Arriving:
    pace = STREAM_S * 1000 / max(1, length)
    records = tuple(
        Record(
            keys.draw(),
            first + n,
            rng.randrange(100),
            int(n * pace) + rng.randrange(DISORDER_MS),
        )
        for n in range(length)
    )
    arrivals = tuple(0.0 if at_once else n * pace / 1000 for n in range(length))
    return Arriving(records, arrivals)


def _branch(rng: Random, number: int, timed: bool) -> Branch:
    size = rng.choice((500, 1000))
    # Of the two slides one ends windows where others start, and one between their starts.
    slide = rng.choice((size, {500: 200, 1000: 500}[size]))
    keyed: list[Stage] = [Totals(), Numbers(rng.choice((0, 0, 4000)))]
    if timed:
        keyed += [InBuckets(), Windows(size, slide), RecordWindows(size, slide)] * 2
    stages = [rng.choice(keyed)]
    if rng.random() < 0.3:
        stages.append(Recount())
    return Branch(tuple(stages), f"sink-{number}")
