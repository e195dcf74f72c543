"""What moved between two sessions, and whether noise could have moved it.

Invariants: only figures of equal cells and variants are compared. A figure has moved when all
trials of one session lie on one side of all trials of the other, and the chance of that without
any change, 2 / C(n + m, n), is at most 5 %: with five trials on each side it is 0.8 %. On
different machines only ratios are compared, for they were formed within one session each.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from tidelog_bench.experiment import Better, Experiment, Setting, settings_key
from tidelog_bench.report.statistics import ratios
from tidelog_bench.session.records import Record, TrialRecord, trials

CHANCE: Final = 0.05
Verdict = Literal["better", "worse", "moved", "same", "too few"]
Values = dict[tuple[str, str, str], list[float]]
"""By cell, variant or ratio, and figure."""


@dataclass(frozen=True, slots=True)
class Change:
    """One figure of a variant, or of a ratio, in both sessions."""

    experiment: str
    settings: Mapping[str, Setting]
    of: str
    """A variant, or `over / under`."""
    figure: str
    before: Sequence[float]
    after: Sequence[float]
    verdict: Verdict

    @property
    def factor(self) -> float | None:
        """Median after divided by median before; None when that is 0."""
        before = statistics.median(self.before)
        return statistics.median(self.after) / before if before else None


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
    def compared(self) -> list[Change]:
        """Those with trials enough to tell."""
        return [change for change in self.changes if change.verdict != "too few"]

    @property
    def by_chance(self) -> float:
        """How many figures would seem to have moved if nothing had."""
        return sum(chance(len(change.before), len(change.after)) for change in self.compared)


def _distance(factor: float | None) -> float:
    """How far a factor is from 1, in either direction; infinite from or to nothing."""
    return abs(math.log(factor)) if factor else math.inf


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
    """Compare the ratios of two sessions and, unless the machines differ, the figures."""
    old, new = list(before), list(after)
    changes = []
    for experiment in experiments:
        then, _ = _values(old, experiment, one_machine)
        now, cells = _values(new, experiment, one_machine)
        better = {figure.name: figure.better for figure in experiment.figures}
        changes += [
            Change(
                experiment.name,
                cells[cell],
                of=of,
                figure=name,
                before=then[cell, of, name],
                after=values,
                verdict=verdict(then[cell, of, name], values, better[name]),
            )
            for (cell, of, name), values in now.items()
            if (cell, of, name) in then and name in better
        ]
    return Comparison(changes)


def _values(
    records: Iterable[Record], experiment: Experiment, one_machine: bool
) -> tuple[Values, dict[str, Mapping[str, Setting]]]:
    """What is compared of an experiment, and the settings of its cells."""
    by_cell: dict[str, list[TrialRecord]] = {}
    for trial in trials(records, experiment.name):
        by_cell.setdefault(settings_key(trial.settings), []).append(trial)
    found: Values = {}
    for cell, of_cell in by_cell.items():
        for trial in of_cell if one_machine else ():
            for name, value in trial.figures.items():
                found.setdefault((cell, trial.variant, name), []).append(value)
        for ratio, of_ratio in ratios(of_cell, experiment.ratios).items():
            for name, spread in of_ratio.items():
                found[cell, ratio, name] = spread["pairs"]
    return found, {cell: of_cell[0].settings for cell, of_cell in by_cell.items()}


def verdict(before: Sequence[float], after: Sequence[float], better: Better) -> Verdict:
    """Whether a figure moved, and whether that is good."""
    if chance(len(before), len(after)) > CHANCE:
        return "too few"
    fell, rose = max(after) < min(before), min(after) > max(before)
    if not (fell or rose):
        return "same"
    if better == "neither":
        return "moved"
    return "better" if rose == (better == "higher") else "worse"


def machine_differs(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether two sessions' machines are not of one kind."""
    return any(before.get(key) != after.get(key) for key in ("cpu", "cores"))
