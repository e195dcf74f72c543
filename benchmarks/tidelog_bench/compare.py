"""What moved between two sessions, and whether noise could have moved it.

Invariants: only figures of equal cells and variants are compared. A figure has moved when all
trials of one session lie on one side of all trials of the other, and the chance of that without
any change, 2 / C(n + m, n), is at most 5 %: with five trials on each side it is 0.8 %. On
different machines only ratios are compared, for they were formed within one session each.
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from tidelog_bench.experiment import Better, Experiment
from tidelog_bench.measurement import Setting, settings_key
from tidelog_bench.session.records import Record, TrialRecord, trials
from tidelog_bench.session.session import ratios_of
from tidelog_bench.statistics import ratios

CHANCE: Final = 0.05
Verdict = Literal["better", "worse", "moved", "same", "too few"]
Key = tuple[str, str, str, str]
"""Measurement, cell, variant or ratio, figure."""


@dataclass(frozen=True, slots=True)
class Change:
    """One figure of a variant, or of a ratio, in both sessions."""

    experiment: str
    settings: Mapping[str, Setting]
    of: str
    """A variant, or `over / under`."""
    figure: str
    unit: str
    before: Sequence[float]
    after: Sequence[float]
    verdict: Verdict

    @property
    def factor(self) -> float:
        """Median after divided by median before; not a number when that is 0."""
        before = statistics.median(self.before)
        return statistics.median(self.after) / before if before else math.nan


@dataclass(frozen=True, slots=True)
class Comparison:
    """All figures that both sessions have."""

    changes: Sequence[Change]

    @property
    def moved(self) -> list[Change]:
        """The changes beyond noise, the largest factors first."""
        found = [change for change in self.changes if change.verdict not in ("same", "too few")]
        return sorted(found, key=lambda change: -_distance(change.factor))

    @property
    def by_chance(self) -> float:
        """How many figures would seem to have moved if nothing had."""
        return sum(chance(len(c.before), len(c.after)) for c in self.changes if _enough(c))


def chance(before: int, after: int) -> float:
    """Probability that `after` values all lie on one side of `before` others by chance."""
    return 2 / math.comb(before + after, before)


def compare(
    before: Iterable[Record],
    after: Iterable[Record],
    experiments: Iterable[Experiment],
    *,
    one_machine: bool,
) -> Comparison:
    """Compare the figures, unless the machines differ, and the ratios, of two sessions."""
    known = list(experiments)
    old, new = _values(trials(before), known), _values(trials(after), known)
    changes: list[Change] = []
    for experiment in known:
        for key, settings in new.cells.items():
            changes += _changes(experiment, key, settings, old, new, one_machine=one_machine)
    return Comparison(changes)


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of a session."""

    cells: dict[tuple[str, str], Mapping[str, Setting]]
    figures: dict[Key, list[float]]
    ratios: dict[Key, list[float]]


def _values(found: Sequence[TrialRecord], experiments: Sequence[Experiment]) -> _Values:
    values = _Values({}, {}, {})
    by_cell: dict[tuple[str, str], list[TrialRecord]] = {}
    for trial in found:
        by_cell.setdefault((trial.measurement, settings_key(trial.settings)), []).append(trial)
    measurements = {e.measurement.name: e.measurement for e in experiments}
    for (measurement, cell), of_cell in by_cell.items():
        if measurement not in measurements:
            continue
        values.cells[measurement, cell] = of_cell[0].settings
        for trial in of_cell:
            for name, value in trial.figures.items():
                key = (measurement, cell, trial.variant, name)
                values.figures.setdefault(key, []).append(value)
        asked = ratios_of(measurements[measurement], experiments)
        for ratio, of_ratio in ratios(of_cell, asked).items():
            for name, spread in of_ratio.items():
                values.ratios[measurement, cell, ratio, name] = spread["pairs"]
    return values


def _changes(
    experiment: Experiment,
    cell: tuple[str, str],
    settings: Mapping[str, Setting],
    old: _Values,
    new: _Values,
    *,
    one_machine: bool,
) -> Iterator[Change]:
    if cell[0] != experiment.measurement.name:
        return
    sides = [(old.ratios, new.ratios)] + ([(old.figures, new.figures)] if one_machine else [])
    for figure in experiment.figures:
        for before, after in sides:
            for key in after:
                if key[:2] != cell or key[3] != figure.name or key not in before:
                    continue
                yield Change(
                    experiment.name,
                    settings,
                    of=key[2],
                    figure=figure.name,
                    unit="" if before is old.ratios else figure.unit,
                    before=before[key],
                    after=after[key],
                    verdict=verdict(before[key], after[key], figure.better),
                )


def verdict(before: Sequence[float], after: Sequence[float], better: Better) -> Verdict:
    """Whether a figure moved, and whether that is good."""
    if chance(len(before), len(after)) > CHANCE:
        return "too few"
    fell, rose = max(after) < min(before), min(after) > max(before)
    if not (fell or rose):
        return "same"
    if better == "neither":
        return "moved"
    return "better" if fell == (better == "lower") else "worse"


def _enough(change: Change) -> bool:
    return change.verdict != "too few"


def _distance(factor: float) -> float:
    """How far a factor is from 1, in either direction; infinite from or to nothing."""
    return abs(math.log(factor)) if factor > 0 else math.inf


def machine_differs(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether two sessions' machines are not of one kind."""
    return any(before.get(key) != after.get(key) for key in ("cpu", "cores"))
