"""The answer of a session to an experiment's question: its cells with figures and ratios.

Invariant: cells keep the order in which they were run, variants the order of the first pair.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidelog_bench import statistics
from tidelog_bench.experiment import Experiment, Figure
from tidelog_bench.measurement import Setting, common, own, settings_key
from tidelog_bench.report.numbers import settings as settings_text
from tidelog_bench.session.records import (
    CutRecord,
    FailureRecord,
    Record,
    SkipRecord,
    TrialRecord,
    trials,
)
from tidelog_bench.statistics import Spread


@dataclass(frozen=True, slots=True)
class CellAnswer:
    """What the trials of one cell say."""

    settings: Mapping[str, Setting]
    own: Mapping[str, Setting]
    """The settings in which the cells of the experiment differ."""
    trials: Sequence[TrialRecord]
    figures: Mapping[str, Mapping[str, Spread]]
    """Variant, then figure."""
    ratios: Mapping[str, Mapping[str, Mapping[str, Any]]]
    """`over / under`, then figure."""

    @property
    def label(self) -> str:
        """What tells the cell from the others; empty when it is the only one."""
        return settings_text(self.own)

    @property
    def variants(self) -> list[str]:
        """The variants that were run."""
        return list(self.figures)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a session says to one experiment."""

    experiment: Experiment
    cells: Sequence[CellAnswer]
    common: Mapping[str, Setting]
    """Settings that all cells share."""
    skipped: Sequence[SkipRecord]
    cut: Sequence[CutRecord]
    """The pairs that there was no time for, and that were not run later."""
    failures: Sequence[FailureRecord]
    """The failures that no later trial made good."""

    @property
    def variants(self) -> list[str]:
        """The variants of all cells, in order."""
        return list(dict.fromkeys(variant for cell in self.cells for variant in cell.variants))

    def present(self, figures: Iterable[Figure]) -> list[Figure]:
        """The figures among these that at least one trial gave."""
        given = {name for cell in self.cells for of in cell.figures.values() for name in of}
        return [figure for figure in figures if figure.name in given]


def answer(experiment: Experiment, records: Iterable[Record]) -> Answer:
    """Read an experiment's answer from the records of a session."""
    kept = list(records)
    name = experiment.measurement.name
    by_cell: dict[str, list[TrialRecord]] = {}
    for trial in trials(kept):
        if trial.measurement == name:
            by_cell.setdefault(settings_key(trial.settings), []).append(trial)
    of_cells = [of[0].settings for of in by_cell.values()]
    shared = common(of_cells)
    return Answer(
        experiment,
        [_cell(experiment, of, shared) for of in by_cell.values()],
        shared,
        _skips(kept, name, by_cell.values()),
        _cuts(kept, name),
        _failures(kept, by_cell, name),
    )


def _cell(
    experiment: Experiment, of: Iterable[TrialRecord], shared: Mapping[str, Setting]
) -> CellAnswer:
    ordered = sorted(of, key=lambda trial: (trial.pair, trial.position))
    settings = ordered[0].settings
    return CellAnswer(
        settings,
        own(settings, shared),
        ordered,
        statistics.figures(ordered),
        statistics.ratios(ordered, experiment.ratios),
    )


def _skips(
    records: Iterable[Record], measurement: str, of_cells: Iterable[Sequence[TrialRecord]]
) -> list[SkipRecord]:
    """One per variant that never ran: a resumed session may say it again, or have what it needs."""
    found = {
        record.variant: record
        for record in records
        if isinstance(record, SkipRecord) and record.measurement == measurement
    }
    ran = {trial.variant for of in of_cells for trial in of}
    return [record for variant, record in found.items() if variant not in ran]


def _cuts(records: Iterable[Record], measurement: str) -> list[CutRecord]:
    found: dict[tuple[str, int], CutRecord] = {}
    for record in records:
        if isinstance(record, CutRecord | TrialRecord) and record.measurement == measurement:
            key = settings_key(record.settings), record.pair
            if isinstance(record, CutRecord):
                found[key] = record
            else:
                found.pop(key, None)
    return list(found.values())


def _failures(
    records: Iterable[Record], by_cell: Mapping[str, Sequence[TrialRecord]], measurement: str
) -> list[FailureRecord]:
    found: dict[tuple[str, str, int], FailureRecord] = {}
    for record in records:
        if isinstance(record, FailureRecord) and record.measurement == measurement:
            found[settings_key(record.settings), record.variant, record.pair] = record
    done = {(cell, trial.variant, trial.pair) for cell, of in by_cell.items() for trial in of}
    return [failure for key, failure in found.items() if key not in done]
