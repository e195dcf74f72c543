"""Records beside rules that are broadcast to all subtasks, from a source with one subtask.

Invariant: rules are numbered; a subtask that sees one out of order marks all that it emits.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.simulator.jobs.job_plan import JobPlan
from tests.simulator.jobs.source import Arrivals, Arriving, Record
from tests.simulator.jobs.stages import one, plus
from tidelog.runtime.graph import Job
from tidelog.runtime.sink import Sink

_STREAM_S = 5.0


@dataclass(frozen=True, slots=True)
class RulesPlan(JobPlan):
    """A job with broadcast state, and a count by key behind it."""

    rules: Arriving
    records: dict[str, Arriving]
    portion: int
    parallelism: int
    counted: bool

    def job(self, now: Callable[[], float], sink: Callable[[str], Sink]) -> Job:
        job = Job("rules", record_types=(Record,))
        rules = job.source(
            Arrivals({"all": self.rules}, self.portion, 0.05, now, blocking=False),
            name="rules",
            parallelism=1,
        )
        records = job.source(
            Arrivals(self.records, self.portion, 0.05, now, blocking=True), name="records"
        )
        checked = records.with_broadcast(rules, on_rule=_learn, on_record=_check)
        if self.counted:
            checked = checked.key_by(_class_of).aggregate(one, plus)
        checked.sink(sink("checked"), name="checked")
        return job

    def expected(self) -> dict[str, Counter[Any]]:
        records = [(r.number, True) for split in self.records.values() for r in split.records]
        if self.counted:
            return {"checked": Counter(Counter(map(_class_of, records)).items())}
        return {"checked": Counter(records)}

    def describe(self) -> str:
        counted = " > aggregate" if self.counted else ""
        return (
            f"parallelism {self.parallelism}; {len(self.rules.records)} rules, {len(self.records)} "
            f"splits of records; with_broadcast{counted}"
        )


def with_rules(rng: Random) -> RulesPlan:
    """A random job of this kind."""
    splits = {f"split-{at}": _stream(rng, 10_000 * at, 40) for at in range(rng.choice((1, 2, 4)))}
    return RulesPlan(
        rules=_stream(rng, 0, rng.choice((5, 60, 150))),
        records=splits,
        portion=rng.choice((1, 3, 10)),
        parallelism=rng.choice((1, 2, 3, 4)),
        counted=rng.random() < 0.4,
    )


def _stream(rng: Random, first: int, length: int) -> Arriving:
    seconds = rng.choice((0.0, _STREAM_S / length))
    records = tuple(Record("any", first + n, 0, 0) for n in range(length))
    return Arriving(records, tuple(n * seconds for n in range(length)))


def _learn(rule: Record, known: MutableMapping[Any, Any]) -> None:
    in_order = known.get("next", 0) == rule.number
    known["in order"] = known.get("in order", True) and in_order
    known["next"] = rule.number + 1


def _check(record: Record, known: Mapping[Any, Any]) -> Iterable[tuple[int, bool]]:
    return [(record.number, known.get("in order", True))]


def _class_of(checked: tuple[int, bool]) -> tuple[int, bool]:
    return checked[0] % 7, checked[1]
