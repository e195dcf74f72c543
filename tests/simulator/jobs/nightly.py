"""Jobs whose input ends, grows and ends again: a batch of records for each night.

Invariants: how much of each split is there in a night is fixed before the run; what is emitted
only because the input has ended is expected once for each night, with that night's value, and all
else once.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from tests.simulator.jobs import stages
from tests.simulator.jobs.plan import FixedPlan, Graph, Records, SourcePlan
from tests.simulator.jobs.source import Arrivals, Record, Split
from tidelog.runtime.source import SplitReader

_AT_THE_END: Final = (
    (stages.TOTALS,),
    (stages.MEANS,),
    (stages.TOTALS, stages.RECOUNT),
    (stages.DISTINCT, stages.RECOUNT),
)
"""Branches whose output comes when the input has ended."""
_AT_ONCE: Final[tuple[tuple[stages.Stage, ...], ...]] = ((), (stages.DISTINCT,), (stages.SPREAD,))


@dataclass
class Nights:
    """The nights of a run, of which one is now."""

    count: int
    now: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class Growing(Arrivals):
    """Splits of which a part is there in each night."""

    nights: Nights
    lengths: Mapping[str, Sequence[int]]
    """How many records of each split there are in each night; 0: the split is not there."""
    has_end = True
    resumes_ended_splits = True

    def discover(self) -> Iterable[str]:
        return list(self.in_night(self.nights.now).splits)

    def open(self, split: str, position: Any) -> SplitReader:
        return self.in_night(self.nights.now).open(split, position)

    def in_night(self, night: int) -> Arrivals:
        """What is there in a night."""
        splits: dict[str, Split] = {}
        for name, split in self.splits.items():
            length = self.lengths[name][night]
            if length:
                splits[name] = replace(split, records=split.records[:length])
        return Arrivals(splits, self.chunk, self.pause, self.blocking)


@dataclass(frozen=True, kw_only=True)
class NightlyPlan(FixedPlan):
    nights: Nights
    expected_by_night: Sequence[Records]
    """What each sink must hold after each night."""


def nightly(rng: Random) -> NightlyPlan:
    nights = Nights(rng.choice((2, 3, 4)))
    sources: list[SourcePlan] = []
    for number in range(rng.choice((1, 1, 2))):
        sources.append(SourcePlan(f"source-{number}", _growing(rng, number, nights), ()))
    at_the_end = rng.sample(_AT_THE_END, 2)
    branches = {f"end-{n}": branch for n, branch in enumerate(at_the_end)}
    branches["at-once"] = rng.choice(_AT_ONCE)
    graph = Graph(tuple(sources), branches, rng.choice((1, 2, 3)))
    expected: list[Records] = []
    emitted = {name: Counter[Any]() for name in branches}
    for night in range(nights.count):
        there = _in_night(graph, night).evaluate()
        for name, records in there.items():
            emitted[name] = records if name == "at-once" else emitted[name] + records
        expected.append(dict(emitted))
    plan = graph.plan()
    return NightlyPlan(
        parallelism=plan.parallelism,
        build=plan.build,
        expected=expected[-1],
        nights=nights,
        expected_by_night=expected,
    )


def _growing(rng: Random, number: int, nights: Nights) -> Growing:
    splits: dict[str, Split] = {}
    lengths: dict[str, list[int]] = {}
    for at in range(rng.choice((1, 2, 4))):
        length, grown = 0, list[int]()
        for night in range(nights.count):
            # In each night there is something new, in the first split at least.
            length += rng.choice((1, 5, 30)) if at == 0 and night else rng.choice((0, 0, 3, 30))
            grown.append(length)
        first = 1_000_000 * number + 10_000 * at
        records = [Record(f"k{rng.randrange(8)}", first + n, n % 7, 0) for n in range(length)]
        splits[f"split-{at}"], lengths[f"split-{at}"] = Split(tuple(records)), grown
    chunk, pause = rng.choice((2, 10, 50)), rng.choice((0.03, 0.1))
    return Growing(splits, chunk, pause, rng.random() < 0.5, nights=nights, lengths=lengths)


def _in_night(graph: Graph, night: int) -> Graph:
    sources: list[SourcePlan] = []
    for source in graph.sources:
        assert isinstance(source.arrivals, Growing)
        sources.append(replace(source, arrivals=source.arrivals.in_night(night)))
    return replace(graph, sources=tuple(sources))
