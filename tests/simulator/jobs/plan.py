"""Drawn jobs: a few sources, their union, and branches of stages after it.

Invariants: a graph is decided by its random source alone; every incarnation builds the same job
from it; what it evaluates to is computed without tidelog.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import takewhile
from random import Random
from typing import Any, Final

from tests.simulator.jobs.job_plan import FixedPlan, Records, Sinks
from tests.simulator.jobs.source import (
    DISORDER_MS,
    Arrivals,
    Record,
    drawn_arrivals,
)
from tests.simulator.jobs.stages import (
    BUCKETS,
    DISTINCT,
    DOUBLE,
    EVERYWHERE,
    MEANS,
    RAISE,
    RECOUNT,
    SPREAD,
    THIN,
    TOTALS,
    TRIPLES,
    Stage,
    event_time,
    numbering,
    sessions,
    sliding,
    through,
)
from tidelog.runtime.config import Mode
from tidelog.runtime.graph import Job

_ALL: Final = "all-records"


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """One source and the stages right after it."""

    name: str
    arrivals: Arrivals
    stages: tuple[Stage, ...]
    parallelism: int | None = None


@dataclass(frozen=True, slots=True)
class Branch:
    """What happens to the union of all sources, and the sink at its end."""

    stages: tuple[Stage, ...]
    sink: str


@dataclass(frozen=True)
class Graph:
    """A drawn job, for tidelog and as plain Python."""

    sources: tuple[SourcePlan, ...]
    branches: tuple[Branch, ...]
    parallelism: int

    def plan(self, mode: Mode = "exactly-once") -> FixedPlan:
        sources = ", ".join(f"{source.name}{_names(source.stages)}" for source in self.sources)
        branches = ", ".join(_names(branch.stages) for branch in self.branches)
        copies = any(stage.copies for source in self.sources for stage in source.stages)
        return FixedPlan(
            about=f"{sources}; {branches}",
            parallelism=self.parallelism,
            build=self.job,
            expected=self.evaluate(),
            mode=mode,
            rescalable=not copies,
        )

    def job(self, sink: Sinks) -> Job:
        job = Job("simulated", record_types=(Record,))
        streams = []
        for source in self.sources:
            read = job.source(source.arrivals, name=source.name, parallelism=source.parallelism)
            streams.append(through(read, source.stages))
        merged = streams[0].union(*streams[1:]) if len(streams) > 1 else streams[0]
        for branch in self.branches:
            through(merged, branch.stages).sink(sink(branch.sink), name=branch.sink)
        return job

    def evaluate(self) -> Records:
        merged: list[Any] = []
        for source in self.sources:
            merged += self._evaluate(source.arrivals.records, source.stages)
        return {b.sink: Counter(self._evaluate(merged, b.stages)) for b in self.branches}

    def _evaluate(self, records: list[Any], stages: tuple[Stage, ...]) -> list[Any]:
        for stage in stages:
            records = stage.evaluate(records) * (self.parallelism if stage.copies else 1)
        return records

    def drained(self, written: Records) -> Records | None:
        """As `JobPlan.drained`, of a job with a sink for every record."""
        read = set(written[_ALL])
        sources = tuple(_beginning(source, read) for source in self.sources)
        if sum(len(source.arrivals.records) for source in sources) != len(read):
            return None
        return replace(self, sources=sources).evaluate()


def _beginning(source: SourcePlan, read: set[Any]) -> SourcePlan:
    """The source with the records of each split up to the first that was not read."""
    splits = {
        name: replace(split, records=tuple(takewhile(read.__contains__, split.records)))
        for name, split in source.arrivals.splits.items()
    }
    return replace(source, arrivals=replace(source.arrivals, splits=splits))


def _names(stages: tuple[Stage, ...]) -> str:
    return "".join(f" > {stage.name}" for stage in stages)


def make_plan(rng: Random) -> FixedPlan:
    return _drawn(rng).plan()


def relay(rng: Random) -> FixedPlan:
    """A stateless job; every record is one of its own, so that a second copy is seen."""
    graph = _drawn(rng)
    branches = tuple(Branch((), f"copy-{n}") for n in range(rng.choice((1, 2))))
    modes: list[Mode] = ["at-least-once", "at-least-once", "exactly-once"]
    return replace(graph, branches=branches).plan(rng.choice(modes))


def lifecycle(rng: Random) -> FixedPlan:
    """A job that may be drained: nothing happens to a record before the branches."""
    graph = _drawn(rng)
    sources = tuple(
        replace(source, stages=tuple(s for s in source.stages if s.name == "event time"))
        for source in graph.sources[:2]
    )
    graph = Graph(sources, (*graph.branches, Branch((), _ALL)), graph.parallelism)
    return replace(graph.plan(), drained=graph.drained)


def _drawn(rng: Random) -> Graph:
    timed = rng.random() < 0.4
    draw_key = _hot_keys(rng)
    count = rng.choice((1, 1, 2, 3))
    sources = tuple(_source(rng, number, draw_key, timed) for number in range(count))
    branches = [_branch(rng, number, timed) for number in range(rng.choice((1, 1, 2)))]
    if rng.random() < 0.3:
        branches.append(Branch((), "as-they-are"))
    return Graph(sources, tuple(branches), rng.choice((1, 2, 2, 3, 4)))


def _hot_keys(rng: Random) -> Callable[[], str]:
    """Draws keys of which a few are hot."""
    count, skew = rng.choice((1, 5, 12, 30)), rng.choice((0.3, 1.0, 3.0))
    return lambda: f"k{int(count * rng.random() ** skew)}"


def _source(rng: Random, number: int, draw_key: Callable[[], str], timed: bool) -> SourcePlan:
    def record(n: int, time: int) -> Record:
        return Record(draw_key(), 1_000_000 * number + n, rng.randrange(100), time)

    # One split in the order of time: only then is no record late, however buffers interleave.
    splits = (1,) if timed else (0, 1, 1, 2, 3, 3)
    arrivals = drawn_arrivals(rng, record, splits, (0, 10, 40, 60, 80), at_once=0.25)
    stages = [event_time(DISORDER_MS)] if timed else []
    stages += [stage for stage in (RAISE, THIN, DOUBLE, SPREAD) if rng.random() < 0.2]
    if rng.random() < 0.1:
        stages.append(EVERYWHERE)
    return SourcePlan(f"source-{number}", arrivals, tuple(stages))


def _branch(rng: Random, number: int, timed: bool) -> Branch:
    size = rng.choice((500, 1000))
    # Of the two slides one ends windows where others start, and one between their starts.
    slide = rng.choice((size, {500: 200, 1000: 500}[size]))
    keyed = [TOTALS, numbering(rng.choice((0, 0, 4000))), rng.choice((MEANS, TRIPLES, DISTINCT))]
    if timed:
        windows = sliding(size, slide)
        keyed += [BUCKETS, windows.sums(), windows.contents()] * 2
        keyed += [sessions(size // 5).sums(each=1000), sessions(size // 2).contents()] * 2
    stages = [rng.choice(keyed)]
    if rng.random() < 0.3:
        stages.append(RECOUNT)
    return Branch(tuple(stages), f"sink-{number}")
