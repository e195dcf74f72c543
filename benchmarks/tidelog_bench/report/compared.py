"""Two sessions side by side: the medians of what both have measured.

Invariant: a ratio of two sessions is no ratio of a pair: the machine may have changed in between,
so it has no verdict.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tidelog_bench.experiment import Setting
from tidelog_bench.report.answer import Answer, CellAnswer, report
from tidelog_bench.session.records import SessionRecord


class ComparedFigure(msgspec.Struct, frozen=True):
    """A figure's medians."""

    figure: str
    first: float
    second: float
    ratio: float | None
    """Second over first; None where the first is 0."""
    unit: str


class ChangedSetting(msgspec.Struct, frozen=True):
    name: str
    first: Setting
    second: Setting


@dataclass(frozen=True, slots=True)
class ComparedCell:
    experiment: str
    variant: str
    label: str
    """The settings that tell the cell from others of the experiment."""
    settings: tuple[ChangedSetting, ...]
    """The settings in which the two differ."""
    figures: tuple[ComparedFigure, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    sessions: tuple[SessionRecord, SessionRecord]
    cells: tuple[ComparedCell, ...]


def compared(first: Path, second: Path) -> Comparison:
    """What two sessions have measured both; raises ConfigError."""
    reports = report([first]), report([second])
    by_name = [{each.experiment.name: each for each in of.answers} for of in reports]
    both = [(by_name[0][name], by_name[1][name]) for name in by_name[0] if name in by_name[1]]
    one, other = (of.sessions[0].session for of in reports)
    return Comparison((one, other), tuple(cell for pair in both for cell in _cells(*pair)))


def _cells(first: Answer, second: Answer) -> Iterator[ComparedCell]:
    for one, other in _matching(first.cells, second.cells):
        changed = tuple(_changed(one.settings, other.settings))
        for variant in one.medians.keys() & other.medians.keys():
            before, after = one.medians[variant], other.medians[variant]
            figures = tuple(
                ComparedFigure(
                    figure.title,
                    (a := before[figure.name]["median"]),
                    (b := after[figure.name]["median"]),
                    b / a if a else None,
                    figure.unit,
                )
                for figure in one.figures
                if figure.name in before and figure.name in after
            )
            yield ComparedCell(first.experiment.name, variant, one.label, changed, figures)


def _matching(
    first: Sequence[CellAnswer], second: Sequence[CellAnswer]
) -> Iterator[tuple[CellAnswer, CellAnswer]]:
    if len(first) == len(second) == 1:
        yield first[0], second[0]
        return
    for one in first:
        yield from ((one, other) for other in second if one.settings == other.settings)


def _changed(
    first: Mapping[str, Setting], second: Mapping[str, Setting]
) -> Iterator[ChangedSetting]:
    for name in dict.fromkeys((*first, *second)):
        if first.get(name) != second.get(name):
            yield ChangedSetting(name, first.get(name), second.get(name))
