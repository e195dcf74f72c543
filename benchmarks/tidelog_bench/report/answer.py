"""The answers of sessions to the questions of experiments: cells with figures, ratios, verdicts.

Invariants: an answer takes all its numbers from one session, the newest that measured it; cells
keep the order in which they were run, variants the order of the first pair.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidelog.errors import ConfigError
from tidelog_bench.experiment import Cell, Experiment, Figure, Setting, Size, common
from tidelog_bench.experiments import RENAMED, chosen, experiments
from tidelog_bench.report.numbers import ENOUGH, Spread, figures, label, ratios
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


@dataclass(frozen=True, slots=True)
class LoadedSession:
    session: SessionRecord
    records: Sequence[Record]
    planned: Mapping[str, Sequence[Cell]]
    """Experiment, then the cells that the session was to run."""

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


def recorded(paths: Sequence[Path]) -> Report:
    """Of every cell of a standard session the newest record with five pairs; raises ConfigError."""
    sessions = [LoadedSession(*opened(path), {}) for path in paths]
    sessions.sort(key=lambda each: each.session.started, reverse=True)
    found: list[Answer] = []
    for experiment in experiments().values():
        wanted = {cell.key for cell in experiment.cells(Size.STANDARD)}
        for source in sessions:
            if source.session.size == Size.QUICK or source.session.job:
                continue
            counted = _enough(source.of(experiment.name), wanted)
            if counted:
                chosen_records = LoadedSession(source.session, counted, {})
                found.append(answer(experiment, chosen_records))
                wanted -= {trial.cell for trial in counted}
    used = {each.session.session for each in found}
    return Report([each for each in sessions if each.session.session in used], found, ())


def _enough(records: Sequence[Record], wanted: Container[str]) -> list[TrialRecord]:
    """The trials of wanted cells that have as many pairs as a verdict needs."""
    by_cell: dict[str, list[TrialRecord]] = {}
    for trial in trials(records):
        if trial.cell in wanted:
            by_cell.setdefault(trial.cell, []).append(trial)
    return [
        trial
        for cell in by_cell.values()
        if len({each.pair for each in cell}) >= pairs_needed(cell[0].settings, ENOUGH)
        for trial in cell
    ]
