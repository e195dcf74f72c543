"""Plots of a report: what the page draws as bars, with lines for how far values reach.

Invariant: bars have their names and numbers beside them, so nobody depends on colours or lengths.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog_bench.experiment import Bars
from tidelog_bench.report.answer import Answer, CellAnswer
from tidelog_bench.report.numbers import Spread, number

_COLOURS: Final = 8
"""Of the style sheet: --v0 to --v7."""
_OURS: Final = ("on", "tidelog")
_Group = tuple[str, Mapping[str, Spread]]


def colours(variants: Iterable[str]) -> dict[str, int]:
    """The same for what is measured in all experiments, others in their order."""
    names = list(variants)
    ours = [name for name in names if name in _OURS][:1]
    ordered = [*ours, *(name for name in names if name not in ours)]
    return {name: at % _COLOURS for at, name in enumerate(ordered, 0 if ours else 1)}


@dataclass(frozen=True, slots=True)
class Panel:
    """A drawing: a plot of one cell, or of all."""

    title: str
    """Which cell; empty when there is only one."""
    unit: str
    log: bool
    groups: Sequence[_Group]
    """Under a label the spreads of variants."""

    @property
    def words(self) -> str:
        """The alternative text."""
        return "; ".join(f"{label or 'all'}: {self._values(bars)}" for label, bars in self.groups)

    def _values(self, bars: Mapping[str, Spread]) -> str:
        return ", ".join(
            f"{variant} {number(spread['median'])} {self.unit}".rstrip()
            for variant, spread in bars.items()
        )

    @property
    def length(self) -> Callable[[float], float]:
        """Of a value, in percent of the largest."""
        spreads = [spread for _, bars in self.groups for spread in bars.values()]
        least, most = (of(each[of.__name__] for each in spreads) for of in (min, max))
        if not self.log:
            return lambda value: 100 * value / (most or 1)
        # From a power of ten on, so that the least one has a length too.
        start = math.ceil(math.log10(least)) - 1
        return lambda value: 100 * (math.log10(value) - start) / (math.log10(most) - start)


@dataclass(frozen=True, slots=True)
class Plotted:
    """A plot with its panels."""

    title: str
    remark: str
    """How to read it."""
    panels: Sequence[Panel]


def plots(answer: Answer) -> Iterator[Plotted]:
    """The plots of an experiment that have something to show."""
    several = any(trial.pair for cell in answer.cells for trial in cell.trials)
    remark = "Medians; lines from min to max." if several else ""
    for plot in answer.experiment.plots:
        if panels := list(_panels(plot, answer)):
            yield Plotted(plot.title, remark, panels)


def _panels(plot: Bars, answer: Answer) -> Iterator[Panel]:
    """One figure: a group per cell; several: a panel per cell with a group per figure."""
    listed = {figure.name: figure for figure in answer.experiment.figures}
    cells, first = answer.cells, plot.figures[0]
    grouped = [("", [(cell.label, _of_figure(cell, first)) for cell in cells])]
    if len(plot.figures) > 1:
        grouped = [
            (cell.label, [(listed[name].title, _of_figure(cell, name)) for name in plot.figures])
            for cell in cells
        ]
    for title, of in grouped:
        if groups := [(label, bars) for label, bars in of if bars]:
            positive = all(spread["min"] > 0 for _, bars in groups for spread in bars.values())
            yield Panel(title, listed[first].unit, plot.log and positive, groups)


def _of_figure(cell: CellAnswer, figure: str) -> dict[str, Spread]:
    return {variant: of[figure] for variant, of in cell.medians.items() if figure in of}
