"""A group of bars per cell, a bar per variant, whiskers from min to max, numbers beside them.

Invariant: bars lie, so that names of cells and numbers have room on a phone.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidelog_bench.experiment import Bars
from tidelog_bench.report.answer import Answer, CellAnswer
from tidelog_bench.report.names import unit_of
from tidelog_bench.report.numbers import number
from tidelog_bench.report.plots.canvas import Panel, Plotted
from tidelog_bench.report.plots.palette import INK, Look
from tidelog_bench.statistics import Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GROUPS = 6
"""Per panel."""
_BAR = 17.0
_LABEL = 26.0
_MARGINS = 44.0
_Group = tuple[str, dict[str, Spread]]


def plotted(plot: Bars, answer: Answer, looks: Mapping[str, Look]) -> Plotted:
    """As many panels as it takes."""
    groups = [group for cell in answer.cells if (group := _group(cell, plot))[1]]
    unit = unit_of(plot.figure, answer)
    panels = [
        _panel(plot, groups[at : at + _GROUPS], unit, looks)
        for at in range(0, len(groups), _GROUPS)
    ]
    several = any(spread["n"] > 1 for _, bars in groups for spread in bars.values())
    return Plotted(plot.title, tuple(panels), "Medians; lines from min to max." if several else "")


def _group(cell: CellAnswer, plot: Bars) -> _Group:
    bars = {
        variant: figures[plot.figure]
        for variant, figures in cell.figures.items()
        if plot.figure in figures
    }
    return cell.label, bars


def _panel(plot: Bars, groups: Sequence[_Group], unit: str, looks: Mapping[str, Look]) -> Panel:
    labelled = any(label for label, _ in groups)

    def draw(axes: "Axes") -> None:
        lowest = min(spread["min"] for _, bars in groups for spread in bars.values())
        highest = max(spread["max"] for _, bars in groups for spread in bars.values())
        log = plot.log and lowest > 0
        left = lowest / 3 if log else 0.0
        axes.set_xscale("log" if log else "linear")
        # Room for the number behind the longest bar.
        far = highest * (highest / left) ** 0.35 if log else highest * 1.35
        axes.set_xlim(left, far or 1.0)
        y = 0.0
        for label, bars in groups:
            if labelled:
                axes.text(0, y, label, va="center", transform=axes.get_yaxis_transform())
                y += _LABEL * 0.75
            for variant, spread in bars.items():
                _bar(axes, y, spread, left, looks[variant])
                y += _BAR
            y += _LABEL * 0.35
        axes.set_ylim(y - _BAR * 0.6, -_BAR * 0.8)
        axes.set_yticks([])
        axes.set_xticks([])
        axes.set_xticks([], minor=True)
        axes.spines["bottom"].set_visible(False)
        axes.set_title(unit, loc="left")

    rows = sum(len(bars) for _, bars in groups)
    height = rows * _BAR + len(groups) * _LABEL * (1.1 if labelled else 0.35) + _MARGINS
    return Panel("", draw, _words(groups, unit), height)


def _bar(axes: "Axes", y: float, spread: Spread, left: float, look: Look) -> None:
    median = spread["median"]
    axes.barh(y, median - left, left=left, height=_BAR * 0.72, color=look.colour)
    if spread["max"] > spread["min"]:
        axes.plot([spread["min"], spread["max"]], [y, y], color=INK, lw=1, marker="|", ms=4)
    axes.annotate(
        number(median),
        (max(median, spread["max"]), y),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
    )


def _words(groups: Sequence[_Group], unit: str) -> str:
    return "; ".join(
        f"{label or 'all'}: "
        + ", ".join(
            f"{variant} {number(spread['median'])} {unit}" for variant, spread in bars.items()
        )
        for label, bars in groups
    )
