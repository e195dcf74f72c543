"""What a report shows: a chapter per experiment, out of one or several sessions.

Invariant: a chapter takes all its numbers from one session, the newest that measured it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidelog.errors import ConfigError
from tidelog_bench.experiment import Experiment
from tidelog_bench.experiments import chosen, experiments
from tidelog_bench.measurement import Cell, Size, common, own, settings_key
from tidelog_bench.report.answer import Answer, answer
from tidelog_bench.report.numbers import settings
from tidelog_bench.session.plan import cells, measurements
from tidelog_bench.session.records import Record, SessionRecord, TrialRecord, opened, trials
from tidelog_bench.session.request import chosen_cells


@dataclass(frozen=True, slots=True)
class LoadedSession:
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
        measured = [record for record in self.records if not isinstance(record, SessionRecord)]
        return any(record.measurement == measurement for record in measured)


@dataclass(frozen=True, slots=True)
class Chapter:
    """The answer to one experiment, and what it lacks."""

    answer: Answer
    session: SessionRecord
    missing: Sequence[str]
    """Sentences; empty when the session was complete."""


def chapters(sessions: Sequence[LoadedSession], experiments: Iterable[Experiment]) -> list[Chapter]:
    """In the order of the experiments; those that no session has touched are chapters too."""
    newest_first = sorted(sessions, key=lambda each: each.session.started, reverse=True)
    return [_chapter(newest_first, experiment) for experiment in experiments]


def _chapter(newest_first: Sequence[LoadedSession], experiment: Experiment) -> Chapter:
    name = experiment.measurement.name
    source = next((each for each in newest_first if each.measured(name)), newest_first[0])
    found = answer(experiment, source.records)
    return Chapter(found, source.session, _missing(found, source, name))


def _missing(found: Answer, source: LoadedSession, measurement: str) -> list[str]:
    """What was planned and is not there.

    A library that has other cells by now does not know what was planned; then only pairs that
    cells lack are loaded.
    """
    there = {settings_key(cell.settings): cell.trials for cell in found.cells}
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
            reasons = [cut.reason for cut in found.cut if settings_key(cut.settings) == key]
            why = f"; cut: {reasons[0]}" if reasons else ""
            sentences.append(f"{whole} of {source.session.pairs} pairs{where}{why}")
    return sentences


def _whole_pairs(of: Iterable[TrialRecord], variants: Sequence[str]) -> int:
    by_pair: dict[int, set[str]] = {}
    for trial in of:
        by_pair.setdefault(trial.pair, set()).add(trial.variant)
    return sum(found.issuperset(variants) for found in by_pair.values())


@dataclass(frozen=True, slots=True)
class Report:
    """Sessions, and a chapter per experiment that they were asked for."""

    sessions: Sequence[LoadedSession]
    chapters: Sequence[Chapter]
    unknown: Sequence[str]
    """Experiments of a session that this version of the library does not have."""


def report(paths: Sequence[Path]) -> Report:
    """Read sessions; raises ConfigError."""
    asked: dict[str, Experiment] = {}
    unknown: dict[str, None] = {}
    sessions = []
    for path in paths:
        first, records = opened(path)
        known: list[Experiment] = []
        for name in first.names:
            try:
                known += chosen((name,))
            except ConfigError:
                unknown[name] = None
        asked |= {experiment.name: experiment for experiment in known}
        wanted, size = chosen_cells(first.only), Size(first.size)
        planned = {each.name: cells(each, size, wanted) for each in measurements(known)}
        sessions.append(LoadedSession(first, records, planned))
    ordered = [experiment for experiment in experiments().values() if experiment.name in asked]
    return Report(sessions, chapters(sessions, ordered), list(unknown))
