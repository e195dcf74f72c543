"""Jobs as values: what the world knows of them, and those that are drawn as a few sources, their
union, and branches of stages after it.

Invariants: a plan is decided by its random source alone, and so is each of its versions; every
incarnation builds the same job from it; what it expects is computed without tidelog.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from random import Random
from typing import Any, Final, Literal

from tests.simulator.jobs import stages
from tests.simulator.jobs.source import DISORDER_MS, STREAM_S, Arrivals, Record, drawn_arrivals
from tidelog import Checkpoint, Job, Sink
from tidelog.runtime.config import Mode

_ALL: Final = "all-records"
Branches = Mapping[str, tuple[stages.Stage, ...]]
"""What happens to the union of all sources, by the sink at its end."""
Refusal = Literal["never", "possible", "certain"]
"""Whether a start is refused; a certain refusal comes before anything is fenced."""
Sinks = Callable[[str], Sink]
"""The sinks of a job by their names."""
Records = dict[str, Counter[Any]]
"""Records for each sink."""


class Version(ABC):
    """The program that one start of a job runs."""

    dropped: tuple[str, ...] = ()
    """Operators whose state the user gives up with `--allow-non-restored-state`."""

    @abstractmethod
    def job(self, sink: Sinks) -> Job:
        """The job, built anew for each incarnation."""

    def refusal(self, checkpoint: Checkpoint) -> Refusal:
        """Whether a start of this program from a checkpoint must be refused."""
        return "never"


@dataclass(frozen=True, kw_only=True)
class JobPlan(ABC):
    parallelism: int
    expected: Records
    """What each sink must hold in the end, once; `objection` judges those that are not here."""
    mode: Mode = "exactly-once"
    """At-least-once jobs may write a record again, and nothing else."""
    rescalable: bool = True
    """Whether the job's output is the same at every parallelism."""
    drained: Callable[[Records], Records | None] | None = None
    """What each sink must hold of a job that was drained when it had written this much; gives None
    when what it has read is no beginning of its splits.
    """

    @abstractmethod
    def version(self, start: int, ended: Version | None, *, calm: bool) -> Version:
        """The program of a start; once faults have stopped it is one that is never refused.

        `ended` is that of which parts have come to their end, if any have.
        """

    def objection(self, committed: Mapping[str, Counter[Any]]) -> str | None:
        """What is wrong with the output as a whole, when all was written."""
        return None


@dataclass(frozen=True, kw_only=True)
class FixedPlan(JobPlan, Version):
    """A job that is the same program at each start."""

    build: Callable[[Sinks], Job]

    def job(self, sink: Sinks) -> Job:
        return self.build(sink)

    def version(self, start: int, ended: Version | None, *, calm: bool) -> Version:
        return self


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """One source and the stages right after it."""

    name: str
    arrivals: Arrivals
    stages: tuple[stages.Stage, ...]
    parallelism: int | None = None


@dataclass(frozen=True)
class Graph:
    """A drawn job, for tidelog and as plain Python."""

    sources: tuple[SourcePlan, ...]
    branches: Branches
    parallelism: int

    def plan(self, mode: Mode = "exactly-once") -> FixedPlan:
        copies = any(stage.copies for source in self.sources for stage in source.stages)
        return FixedPlan(
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
            streams.append(stages.through(read, source.stages))
        merged = streams[0].union(*streams[1:]) if len(streams) > 1 else streams[0]
        for name, branch in self.branches.items():
            stages.through(merged, branch).sink(sink(name), name=name)
        return job

    def evaluate(self) -> Records:
        merged: list[Any] = []
        for source in self.sources:
            merged += self._evaluate(source.arrivals.records, source.stages)
        branches = self.branches.items()
        return {sink: Counter(self._evaluate(merged, branch)) for sink, branch in branches}

    def _evaluate(self, records: list[Any], path: tuple[stages.Stage, ...]) -> list[Any]:
        for stage in path:
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


def make_plan(rng: Random) -> FixedPlan:
    return _drawn(rng).plan()


def relay(rng: Random) -> FixedPlan:
    """A stateless job; every record is one of its own, so that a second copy is seen."""
    graph = _drawn(rng)
    branches: Branches = {f"copy-{n}": () for n in range(rng.choice((1, 2)))}
    modes: list[Mode] = ["at-least-once", "at-least-once", "exactly-once"]
    return replace(graph, branches=branches).plan(rng.choice(modes))


def lifecycle(rng: Random) -> FixedPlan:
    """A job that may be drained: nothing happens to a record before the branches."""
    graph = _drawn(rng, plain=True)
    graph = Graph(graph.sources[:2], {**graph.branches, _ALL: ()}, graph.parallelism)
    return replace(graph.plan(), drained=graph.drained)


def wide(rng: Random) -> JobPlan:
    """The same with keys so long that each row of a table is a block, and slower input."""
    return _drawn(rng, key_width=300, stream_s=10.0).plan()


def _drawn(
    rng: Random, *, plain: bool = False, key_width: int = 0, stream_s: float = STREAM_S
) -> Graph:
    timed = rng.random() < 0.4
    draw_key = _hot_keys(rng, key_width)
    count = rng.choice((1, 1, 2, 3))
    sources = tuple(
        _source(rng, number, draw_key, timed, plain, stream_s) for number in range(count)
    )
    branches = {f"sink-{n}": _branch(rng, timed) for n in range(rng.choice((1, 1, 2)))}
    if rng.random() < 0.3:
        branches["as-they-are"] = ()
    return Graph(sources, branches, rng.choice((1, 2, 2, 3, 4)))


def _hot_keys(rng: Random, width: int) -> Callable[[], str]:
    """Draws keys of which a few are hot, filled up to that width."""
    count, skew = rng.choice((1, 5, 12, 30)), rng.choice((0.3, 1.0, 3.0))
    return lambda: f"k{int(count * rng.random() ** skew)}".ljust(width, "-")


def _source(
    rng: Random, number: int, draw_key: Callable[[], str], timed: bool, plain: bool, stream_s: float
) -> SourcePlan:
    def record(n: int, time: int) -> Record:
        return Record(draw_key(), 1_000_000 * number + n, rng.randrange(100), time)

    # One split in the order of time: only then is no record late, however buffers interleave.
    splits = (1,) if timed else (0, 1, 1, 2, 3, 3)
    arrivals = drawn_arrivals(
        rng, record, splits, (0, 10, 40, 60, 80), at_once=0.25, stream_s=stream_s
    )
    then = [stages.event_time(DISORDER_MS)] if timed else []
    if not plain:
        then += [
            stage
            for stage in (stages.RAISE, stages.THIN, stages.DOUBLE, stages.SPREAD)
            if rng.random() < 0.2
        ]
        then += [stages.EVERYWHERE] if rng.random() < 0.1 else []
    return SourcePlan(f"source-{number}", arrivals, tuple(then))


def _branch(rng: Random, timed: bool) -> tuple[stages.Stage, ...]:
    size = rng.choice((500, 1000))
    # Of the two slides one ends windows where others start, and one between their starts.
    slide = rng.choice((size, {500: 200, 1000: 500}[size]))
    keyed = [
        stages.TOTALS,
        stages.numbering(rng.choice((0, 0, 4000))),
        rng.choice((stages.MEANS, stages.TRIPLES, stages.DISTINCT)),
    ]
    if timed:
        windows = stages.sliding(size, slide)
        keyed += [stages.BUCKETS, windows.sums(), windows.contents()] * 2
        keyed += [
            stages.sessions(size // 5).sums(each=1000),
            stages.sessions(size // 2).contents(),
        ] * 2
    return rng.choice(keyed), *((stages.RECOUNT,) if rng.random() < 0.3 else ())
