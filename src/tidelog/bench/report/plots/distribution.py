"""Quantiles side by side: a panel per cell, a line per variant, bars from min to max."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidelog.bench.experiment import Distribution
from tidelog.bench.report.answer import Answer, CellAnswer
from tidelog.bench.report.names import short_titles, unit_of
from tidelog.bench.report.numbers import number
from tidelog.bench.report.plots.canvas import plain_numbers
from tidelog.bench.report.plots.palette import Look
from tidelog.bench.report.plots.panel import Panel, Plotted
from tidelog.bench.statistics import Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEIGHT = 250.0
_APART = 0.07
"""Of the variants at one place, so that their bars do not cover each other."""
_Lines = dict[str, list[tuple[int, Spread]]]


def plotted(plot: Distribution, answer: Answer, looks: Mapping[str, Look]) -> Plotted:
    """A panel per cell that has one of the figures."""
    titles = short_titles(plot.figures, answer)
    unit = unit_of(plot.figures[0], answer)
    panels = [
        _panel(plot, cell.label, lines, titles, unit, looks)
        for cell in answer.cells
        if (lines := _lines(cell, plot))
    ]
    several = any(
        s["n"] > 1 for c in answer.cells for of in c.figures.values() for s in of.values()
    )
    return Plotted(plot.title, tuple(panels), "Medians; bars from min to max." if several else "")


def _lines(cell: CellAnswer, plot: Distribution) -> _Lines:
    found = {
        variant: [(at, figures[name]) for at, name in enumerate(plot.figures) if name in figures]
        for variant, figures in cell.figures.items()
    }
    return {variant: points for variant, points in found.items() if points}


def _panel(
    plot: Distribution,
    label: str,
    lines: _Lines,
    titles: Sequence[str],
    unit: str,
    looks: Mapping[str, Look],
) -> Panel:
    def draw(axes: "Axes") -> None:
        for number_, (variant, points) in enumerate(lines.items()):
            shift = (number_ - (len(lines) - 1) / 2) * _APART
            _line(axes, points, shift, looks[variant])
        axes.set_xticks(range(len(titles)), titles)
        axes.set_xlim(-0.4, len(titles) - 0.6)
        axes.set_title(unit, loc="left")
        lowest = min(spread["min"] for points in lines.values() for _, spread in points)
        log = plot.log and lowest > 0
        if log:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=min(0.0, lowest))
        plain_numbers(axes.yaxis, log=log)

    words = "; ".join(
        f"{variant}: "
        + ", ".join(f"{titles[at]} {number(spread['median'])} {unit}" for at, spread in points)
        for variant, points in lines.items()
    )
    return Panel(label, draw, words, _HEIGHT)


def _line(axes: "Axes", points: Sequence[tuple[int, Spread]], shift: float, look: Look) -> None:
    medians = [spread["median"] for _, spread in points]
    axes.errorbar(
        [at + shift for at, _ in points],
        medians,
        yerr=[
            [spread["median"] - spread["min"] for _, spread in points],
            [spread["max"] - spread["median"] for _, spread in points],
        ],
        color=look.colour,
        linestyle=look.line,
        marker=look.marker,
        elinewidth=1.0,
        capsize=2.5,
    )
