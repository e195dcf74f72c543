"""A figure against a numeric setting: a line per variant, bars from min to max.

Invariant: the points of a line differ in that one setting only; other settings get other panels.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tidelog.bench.experiment import Against, Bars
from tidelog.bench.measurement import Setting
from tidelog.bench.report.answer import Answer, CellAnswer
from tidelog.bench.report.names import unit_of
from tidelog.bench.report.numbers import number, settings
from tidelog.bench.report.plots import bars
from tidelog.bench.report.plots.canvas import plain_numbers
from tidelog.bench.report.plots.palette import Look
from tidelog.bench.report.plots.panel import Panel, Plotted
from tidelog.bench.statistics import Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEIGHT = 250.0
_TICKS = 6
_Lines = dict[str, list[tuple[float, Spread]]]


def plotted(plot: Against, answer: Answer, looks: Mapping[str, Look]) -> Plotted:
    """A panel per combination of the other settings; bars where no line has two points."""
    groups: dict[str, list[CellAnswer]] = {}
    for cell in answer.cells:
        value = cell.settings.get(plot.setting)
        if isinstance(value, int | float) and not isinstance(value, bool):
            groups.setdefault(json.dumps(_others(cell, plot), sort_keys=True), []).append(cell)
    if groups and all(len(cells) == 1 for cells in groups.values()):
        return bars.plotted(Bars(plot.figure, plot.title, plot.log_y), answer, looks)
    panels = []
    for cells in groups.values():
        lines = _lines(cells, plot)
        if lines:
            title = settings(_others(cells[0], plot))
            panels.append(_panel(plot, title, lines, unit_of(plot.figure, answer), looks))
    several = any(
        s["n"] > 1 for c in answer.cells for of in c.figures.values() for s in of.values()
    )
    return Plotted(plot.title, tuple(panels), "Medians; bars from min to max." if several else "")


def _others(cell: CellAnswer, plot: Against) -> dict[str, Setting]:
    return {name: value for name, value in cell.own.items() if name != plot.setting}


def _lines(cells: Iterable[CellAnswer], plot: Against) -> _Lines:
    lines: _Lines = {}
    for cell in cells:
        at = cell.settings[plot.setting]
        assert isinstance(at, int | float)
        for variant, figures in cell.figures.items():
            if plot.figure in figures:
                lines.setdefault(variant, []).append((float(at), figures[plot.figure]))
    return {variant: sorted(points, key=lambda p: p[0]) for variant, points in lines.items()}


def _panel(plot: Against, title: str, lines: _Lines, unit: str, looks: Mapping[str, Look]) -> Panel:
    def draw(axes: "Axes") -> None:
        for variant, points in lines.items():
            _line(axes, points, looks[variant])
        axes.set_xlabel(plot.setting.replace("_", " "))
        axes.set_title(unit, loc="left")
        places = sorted({at for points in lines.values() for at, _ in points})
        if plot.log_x and places[0] > 0:
            axes.set_xscale("log")
        if len(places) <= _TICKS:
            axes.set_xticks(places, [number(place) for place in places])
            axes.set_xticks([], minor=True)
        else:
            plain_numbers(axes.xaxis, log=plot.log_x)
        lowest = min(spread["min"] for points in lines.values() for _, spread in points)
        if plot.log_y and lowest > 0:
            axes.set_yscale("log")
            plain_numbers(axes.yaxis, log=True)
        else:
            axes.set_ylim(bottom=min(0.0, lowest))
            plain_numbers(axes.yaxis)

    words = "; ".join(
        f"{variant}: "
        + ", ".join(f"{number(spread['median'])} at {number(at)}" for at, spread in points)
        for variant, points in lines.items()
    )
    return Panel(title, draw, f"{words} ({unit})" if unit else words, _HEIGHT)


def _line(axes: "Axes", points: Sequence[tuple[float, Spread]], look: Look) -> None:
    medians = [spread["median"] for _, spread in points]
    below = [spread["median"] - spread["min"] for _, spread in points]
    above = [spread["max"] - spread["median"] for _, spread in points]
    axes.errorbar(
        [at for at, _ in points],
        medians,
        yerr=[below, above],
        color=look.colour,
        linestyle=look.line,
        marker=look.marker,
        elinewidth=1.0,
        capsize=2.5,
    )
