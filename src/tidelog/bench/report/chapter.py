"""What a report tells: a chapter per experiment, out of one or several sessions.

Invariant: a chapter takes all its numbers from one session, the newest that measured it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.bench.experiment import Experiment
from tidelog.bench.measurement import Cell, Setting
from tidelog.bench.records import Record, SessionRecord, TrialRecord, trials
from tidelog.bench.report.answer import Answer, answer
from tidelog.bench.report.numbers import settings
from tidelog.bench.settings import common, own


@dataclass(frozen=True, slots=True)
class Told:
    """A session that was read."""

    session: SessionRecord
    records: Sequence[Record]
    planned: Mapping[str, Sequence[Cell]]
    """Measurement, then the cells that the session was to run."""

    @property
    def stolen(self) -> float:
        """The largest share of processor time that the host gave to others during a trial."""
        return max((trial.stolen for trial in trials(self.records)), default=0.0)

    @property
    def loads(self) -> tuple[float, float] | None:
        """Lowest and highest load average at the beginning of a trial."""
        loads = [trial.load for trial in trials(self.records)]
        return (min(loads), max(loads)) if loads else None

    def measured(self, measurement: str) -> bool:
        """Whether there is a record of it."""
        return any(getattr(record, "measurement", None) == measurement for record in self.records)


@dataclass(frozen=True, slots=True)
class Chapter:
    """The answer to one experiment, and what it lacks."""

    answer: Answer
    session: SessionRecord
    missing: Sequence[str]
    """Sentences; empty when the session was complete."""


def chapters(told: Sequence[Told], experiments: Iterable[Experiment]) -> list[Chapter]:
    """In the order of the experiments; those that no session has touched are chapters too."""
    newest_first = sorted(told, key=lambda each: each.session.started, reverse=True)
    return [_chapter(newest_first, experiment) for experiment in experiments]


def _chapter(newest_first: Sequence[Told], experiment: Experiment) -> Chapter:
    name = experiment.measurement.name
    source = next((each for each in newest_first if each.measured(name)), newest_first[0])
    found = answer(experiment, source.records)
    return Chapter(found, source.session, _missing(found, source, name))


def _missing(found: Answer, source: Told, measurement: str) -> list[str]:
    """What was planned and is not there.

    A library that has other cells by now does not know what was planned; then only pairs that
    cells lack are told.
    """
    there = {_key(cell.settings): cell.trials for cell in found.cells}
    planned = {cell.key: cell for cell in source.planned.get(measurement, ())}
    if not there.keys() <= planned.keys():
        planned = {
            key: Cell(cell.settings, tuple(found.variants), 0.0)
            for key, cell in zip(there, found.cells, strict=True)
        }
    shared = common([cell.settings for cell in planned.values()])
    skipped = {skip.variant for skip in found.skipped}
    sentences = []
    for key, cell in planned.items():
        variants = [variant for variant in cell.variants if variant not in skipped]
        whole = _whole_pairs(there.get(key, ()), variants)
        if variants and whole < source.session.pairs:
            where = settings(own(cell.settings, shared))
            where = f" of {where}" if where else ""
            sentences.append(f"{whole} of {source.session.pairs} pairs{where}")
    return sentences


def _whole_pairs(of: Iterable[TrialRecord], variants: Sequence[str]) -> int:
    by_pair: dict[int, set[str]] = {}
    for trial in of:
        by_pair.setdefault(trial.pair, set()).add(trial.variant)
    return sum(found.issuperset(variants) for found in by_pair.values())


def _key(of: Mapping[str, Setting]) -> str:
    return json.dumps(dict(of), sort_keys=True)
