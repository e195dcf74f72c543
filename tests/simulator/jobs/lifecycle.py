"""Jobs that may be drained: one sink has every record, and tells how far the others must be.

Invariant: nothing happens to a record in front of the branches, so what was read is what one of
the sinks holds.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from tests.simulator.jobs.plan import Branch, Plan, SourcePlan, make_plan
from tests.simulator.jobs.source import Arriving
from tests.simulator.jobs.stages import EventTime

_ALL: Final = "all-records"


@dataclass(frozen=True, slots=True)
class LifecyclePlan(Plan):
    """A plan of which any beginning can be evaluated."""

    def drained(self, committed: Mapping[str, Counter[Any]]) -> dict[str, Counter[Any]] | None:
        read = set(committed.get(_ALL, ()))
        splits = [split for source in self.sources for split in source.splits.values()]
        if any(record in read for split in splits for record in _behind_a_gap(split, read)):
            return None
        sources = tuple(_beginning(source, read) for source in self.sources)
        return replace(self, sources=sources).expected()


def lifecycle(rng: Random) -> LifecyclePlan:
    """A random job of this kind."""
    plan = make_plan(rng)
    sources = tuple(
        replace(source, stages=tuple(s for s in source.stages if isinstance(s, EventTime)))
        for source in plan.sources[:2]
    )
    return LifecyclePlan(sources, (*plan.branches, Branch((), _ALL)), plan.parallelism)


def _behind_a_gap(split: Arriving, read: set[Any]) -> tuple[Any, ...]:
    missing = (at for at, record in enumerate(split.records) if record not in read)
    return split.records[next(missing, len(split.records)) :]


def _beginning(source: SourcePlan, read: set[Any]) -> SourcePlan:
    splits = {
        name: replace(split, records=tuple(r for r in split.records if r in read))
        for name, split in source.splits.items()
    }
    return replace(source, splits=splits)
