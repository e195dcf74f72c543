"""The answers of sessions to the questions of experiments: cells with figures, ratios, verdicts.

Invariants: an answer takes all its numbers from one session, the newest that measured it; cells
keep the order in which they were run, variants the order of the first pair.
"""

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelog.errors import ConfigError
from tidelog_bench.experiment import Cell, Experiment, Figure, Setting, Size, common
from tidelog_bench.experiments import RENAMED, chosen, experiments
from tidelog_bench.report.declared import declared
from tidelog_bench.report.numbers import Spread, Verdict, figures, label, ratios, verdict
from tidelog_bench.session.plan import cells, left, of_session, steps
from tidelog_bench.session.records import (
    CutRecord,
    FailureRecord,
    Record,
    SessionRecord,
    SkipRecord,
    TrialRecord,
    opened,
    pairs_needed,
    trials,
)
from tidelog_bench.session.sources import is_stale


@dataclass(frozen=True, slots=True)
class CellAnswer:
    settings: Mapping[str, Setting]
    label: str
    """The settings that tell the cell from the others; empty when it is the only one."""
    medians: Mapping[str, Mapping[str, Spread]]
    """Variant, then figure."""
    ratios: Mapping[str, Mapping[str, Spread]]
    """`over / under`, then figure."""
    figures: Sequence[Figure]
    """Those of the experiment that at least one trial gave."""


@dataclass(frozen=True, slots=True)
class Headline:
    """The first ratio of a figure, over all cells that have it."""

    figure: Figure
    ratio: str
    median: float
    """The median of the cells' medians."""
    min: float
    """The lowest ratio of all pairs of all cells."""
    max: float
    verdicts: Sequence[Verdict]
    """One verdict per cell."""

    @property
    def says(self) -> str:
        if len(self.verdicts) == 1:
            return self.verdicts[0]
        counted = Counter(self.verdicts)
        if len(counted) == 1:
            return f"{self.verdicts[0]} in all {len(self.verdicts)} cells"
        return ", ".join(f"{counted[kind]} {kind}" for kind in Verdict if counted[kind])

    @property
    def kind(self) -> str:
        """What all cells say in a word; `mixed` where they disagree."""
        return self.verdicts[0].name.lower() if len(set(self.verdicts)) == 1 else "mixed"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a session says to one experiment."""

    experiment: Experiment
    session: SessionRecord
    cells: Sequence[CellAnswer]
    common: Mapping[str, Setting]
    """Settings that all cells share."""
    skipped: Sequence[SkipRecord]
    failures: Sequence[FailureRecord]
    """The failures that no later trial made good."""
    missing: Sequence[str]
    """What was planned and is not there, in sentences; empty when the session was complete."""

    @property
    def stale(self) -> bool:
        """Whether the code has changed since, as far as is known."""
        return is_stale(self.session, self.experiment.name)

    @property
    def age(self) -> str:
        """The same as a sentence."""
        if self.experiment.name not in self.session.sources:
            return "Its code may have changed since: the session has no digest of it."
        return f"Its code {'has' if self.stale else 'has not'} changed since."

    @property
    def variants(self) -> list[str]:
        return list(dict.fromkeys(variant for cell in self.cells for variant in cell.medians))

    @property
    def headlines(self) -> list[Headline]:
        """A line for each main figure that could be divided."""
        known = {figure.name: figure for figure in self.experiment.figures}
        lines = (next(self._headlines(known[name]), None) for name in self.experiment.main)
        return [line for line in lines if line is not None]

    def _headlines(self, figure: Figure) -> Iterator[Headline]:
        for ratio in self.experiment.ratios:
            of = [cell.ratios.get(ratio.name, {}) for cell in self.cells]
            if found := [each[figure.name] for each in of if figure.name in each]:
                yield Headline(
                    figure,
                    ratio.name,
                    statistics.median(each["median"] for each in found),
                    min(each["min"] for each in found),
                    max(each["max"] for each in found),
                    [verdict(each, figure) for each in found],
                )


@dataclass(frozen=True, slots=True)
class LoadedSession:
    session: SessionRecord
    records: Sequence[Record]
    planned: Mapping[str, Sequence[Cell]]
    """Experiment, then the cells that the session was to run."""

    @property
    def stolen(self) -> float:
        """The largest share of processor time that the host gave to others during a trial."""
        return max((trial.stolen for trial in trials(self.records)), default=0.0)

    @property
    def loads(self) -> tuple[float, float] | None:
        """Lowest and highest load average at the beginning of a trial."""
        loads = [trial.load for trial in trials(self.records)]
        return (min(loads), max(loads)) if loads else None

    def of(self, experiment: str) -> list[Record]:
        return [each for each in self.records if getattr(each, "experiment", None) == experiment]


def answer(experiment: Experiment, source: LoadedSession) -> Answer:
    """Read an experiment's answer from the records of a session."""
    records, by_cell = source.of(experiment.name), dict[str, list[TrialRecord]]()
    for trial in trials(records):
        by_cell.setdefault(trial.cell, []).append(trial)
    shared = common([of[0].settings for of in by_cell.values()])
    done = {(key, trial.variant, trial.pair) for key, of in by_cell.items() for trial in of}
    skips = {record.variant: record for record in records if isinstance(record, SkipRecord)}
    failed = {(r.cell, r.variant, r.pair): r for r in records if isinstance(r, FailureRecord)}
    # A resumed session may say a skip again, or have what it needs.
    skipped = [skip for name, skip in skips.items() if name not in {name for _, name, _ in done}]
    return Answer(
        experiment,
        source.session,
        [_cell(experiment, of, shared) for of in by_cell.values()],
        shared,
        skipped,
        [failure for key, failure in failed.items() if key not in done],
        _missing(source, experiment, by_cell, skipped),
    )


def _cell(
    experiment: Experiment, of: Iterable[TrialRecord], shared: Mapping[str, Setting]
) -> CellAnswer:
    ordered = sorted(of, key=lambda trial: (trial.pair, trial.position))
    given = {name for trial in ordered for name in trial.figures}
    return CellAnswer(
        ordered[0].settings,
        label(ordered[0].settings, shared),
        figures(ordered),
        ratios(ordered, experiment.ratios),
        [figure for figure in experiment.figures if figure.name in given],
    )


def _missing(
    source: LoadedSession,
    experiment: Experiment,
    there: Mapping[str, Sequence[TrialRecord]],
    skipped: Sequence[SkipRecord],
) -> list[str]:
    """What was planned and is not there.

    A library that has other cells by now does not know what was planned; then only pairs that
    cells lack are missing.
    """
    planned = source.planned.get(experiment.name, ())
    if not there.keys() <= {cell.key for cell in planned}:
        recorded = there.values()
        planned = [
            Cell(of[0].settings, tuple({each.variant for each in of}), 0.0) for of in recorded
        ]
    shared = common([cell.settings for cell in planned])
    records = source.of(experiment.name)
    cuts = {r.cell: r.reason for r in records if isinstance(r, CutRecord)}
    sentences = []
    for cell in planned:
        needed = pairs_needed(cell.settings, source.session.pairs)
        todo = left(list(steps(experiment, [cell], skipped, needed)), trials(records))
        if lacking := len({step.pair for step in todo}):
            named = label(cell.settings, shared)
            sentences.append(
                f"{needed - lacking} of {needed} pairs"
                + (f" of {named}" if named else "")
                + (f"; cut: {cuts[cell.key]}" if cell.key in cuts else "")
            )
    return sentences


@dataclass(frozen=True, slots=True)
class Report:
    """Sessions, and an answer per experiment that they were asked for."""

    sessions: Sequence[LoadedSession]
    answers: Sequence[Answer]
    unknown: Sequence[str]
    """Experiments of a session that this version of the library does not have."""

    @property
    def targets(self) -> list[dict[str, Any]]:
        if all(each.session.job for each in self.sessions):
            return []
        recorded = [(each.session, each.records) for each in self.sessions]
        return [target.result(recorded) for target in declared("targets").targets]


def report(paths: Sequence[Path]) -> Report:
    """Read sessions; raises ConfigError."""
    asked: set[str] = set()
    unknown: dict[str, None] = {}
    sessions, own = [], list[Experiment]()
    for path in paths:
        first, records = opened(path)
        if first.job:
            own = of_session(first)
            planned = {each.name: each.cells(Size(first.size)) for each in own}
            sessions.append(LoadedSession(first, records, planned))
            continue
        size, planned = Size(first.size), dict[str, Sequence[Cell]]()
        # `all`, or a group, had fewer experiments when the session was recorded.
        known = {RENAMED.get(name, name) for name in first.sources}
        for name in first.names:
            try:
                planned |= {
                    each.name: cells(each, size, first.only)
                    for each in chosen((name,))
                    if not known or each.name in known
                }
            except ConfigError:
                unknown[name] = None
        asked |= planned.keys()
        sessions.append(LoadedSession(first, records, planned))
    ordered = [experiment for experiment in experiments().values() if experiment.name in asked]
    return Report(sessions, answers(sessions, [*ordered, *own]), list(unknown))


def answers(sessions: Sequence[LoadedSession], asked: Iterable[Experiment]) -> list[Answer]:
    """In the order of the experiments; each from the newest session that has touched it."""
    newest_first = sorted(sessions, key=lambda each: each.session.started, reverse=True)
    found = []
    for experiment in asked:
        touched = (each for each in newest_first if each.of(experiment.name))
        found.append(answer(experiment, next(touched, newest_first[0])))
    return found
