"""Medians as lines of variants, bars from min to max: against a numeric setting, or quantiles side
by side.

Invariant: the points of a line against a setting differ in that one setting only; other settings
get other panels.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tidelog_bench.experiment import Against, Bars, Distribution
from tidelog_bench.measurement import Setting, settings_key
from tidelog_bench.report.answer import Answer, CellAnswer
from tidelog_bench.report.names import short_titles, unit_of
from tidelog_bench.report.numbers import number, settings
from tidelog_bench.report.plots import bars
from tidelog_bench.report.plots.canvas import Panel, Plotted, plain_numbers
from tidelog_bench.report.plots.palette import Look
from tidelog_bench.statistics import Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEIGHT = 250.0
_TICKS = 6
_APART = 0.07
"""Between variants at one quantile, so that their bars do not cover each other."""
_Lines = dict[str, list[tuple[float, Spread]]]


def against(plot: Against, answer: Answer, looks: Mapping[str, Look]) -> Plotted:
    """A panel per combination of the other settings; bars where no line has two points."""
    groups: dict[str, list[CellAnswer]] = {}
    for cell in answer.cells:
        value = cell.settings.get(plot.setting)
        if isinstance(value, int | float) and not isinstance(value, bool):
            groups.setdefault(settings_key(_others(cell, plot)), []).append(cell)
    if groups and all(len(cells) == 1 for cells in groups.values()):
        return bars.plotted(Bars(plot.figure, plot.title, plot.log_y), answer, looks)
    unit = unit_of(plot.figure, answer)
    panels = [
        _against_panel(plot, settings(_others(cells[0], plot)), lines, unit, looks)
        for cells in groups.values()
        if (lines := _lines_against(cells, plot))
    ]
    return Plotted(plot.title, tuple(panels), _remark(answer))


def distribution(plot: Distribution, answer: Answer, looks: Mapping[str, Look]) -> Plotted:
    """A panel per cell that has one of the figures."""
    titles = short_titles(plot.figures, answer)
    unit = unit_of(plot.figures[0], answer)
    panels = [
        _distribution_panel(plot, cell.label, lines, titles, unit, looks)
        for cell in answer.cells
        if (lines := _lines_of(cell, plot))
    ]
    return Plotted(plot.title, tuple(panels), _remark(answer))


def _remark(answer: Answer) -> str:
    several = any(
        s["n"] > 1 for c in answer.cells for of in c.figures.values() for s in of.values()
    )
    return "Medians; bars from min to max." if several else ""


def _others(cell: CellAnswer, plot: Against) -> dict[str, Setting]:
    return {name: value for name, value in cell.own.items() if name != plot.setting}


def _lines_against(cells: Iterable[CellAnswer], plot: Against) -> _Lines:
    lines: _Lines = {}
    for cell in cells:
        at = cell.settings[plot.setting]
        assert isinstance(at, int | float)
        for variant, figures in cell.figures.items():
            if plot.figure in figures:
                lines.setdefault(variant, []).append((float(at), figures[plot.figure]))
    return {variant: sorted(points, key=lambda p: p[0]) for variant, points in lines.items()}


def _lines_of(cell: CellAnswer, plot: Distribution) -> _Lines:
    lines: _Lines = {}
    for variant, figures in cell.figures.items():
        for at, name in enumerate(plot.figures):
            if name in figures:
                lines.setdefault(variant, []).append((float(at), figures[name]))
    return lines


def _against_panel(
    plot: Against, title: str, lines: _Lines, unit: str, looks: Mapping[str, Look]
) -> Panel:
    def draw(axes: "Axes") -> None:
        for variant, points in lines.items():
            _line(axes, points, 0.0, looks[variant])
        axes.set_xlabel(plot.setting.replace("_", " "))
        places = sorted({at for points in lines.values() for at, _ in points})
        if plot.log_x and places[0] > 0:
            axes.set_xscale("log")
        if len(places) <= _TICKS:
            axes.set_xticks(places, [number(place) for place in places])
            axes.set_xticks([], minor=True)
        else:
            plain_numbers(axes.xaxis, log=plot.log_x)
        _scale(axes, lines, unit, log=plot.log_y)

    words = "; ".join(
        f"{variant}: "
        + ", ".join(f"{number(spread['median'])} at {number(at)}" for at, spread in points)
        for variant, points in lines.items()
    )
    return Panel(title, draw, f"{words} ({unit})" if unit else words, _HEIGHT)


def _distribution_panel(
    plot: Distribution,
    label: str,
    lines: _Lines,
    titles: Sequence[str],
    unit: str,
    looks: Mapping[str, Look],
) -> Panel:
    def draw(axes: "Axes") -> None:
        for nth, (variant, points) in enumerate(lines.items()):
            _line(axes, points, (nth - (len(lines) - 1) / 2) * _APART, looks[variant])
        axes.set_xticks(range(len(titles)), titles)
        axes.set_xlim(-0.4, len(titles) - 0.6)
        _scale(axes, lines, unit, log=plot.log)

    words = "; ".join(
        f"{variant}: "
        + ", ".join(f"{titles[int(at)]} {number(spread['median'])} {unit}" for at, spread in points)
        for variant, points in lines.items()
    )
    return Panel(label, draw, words, _HEIGHT)


def _scale(axes: "Axes", lines: _Lines, unit: str, *, log: bool) -> None:
    """The unit and the scale of the values, which is logarithmic only where none is 0."""
    axes.set_title(unit, loc="left")
    lowest = min(spread["min"] for points in lines.values() for _, spread in points)
    log = log and lowest > 0
    if log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=min(0.0, lowest))
    plain_numbers(axes.yaxis, log=log)


def _line(axes: "Axes", points: Sequence[tuple[float, Spread]], shift: float, look: Look) -> None:
    medians = [spread["median"] for _, spread in points]
    below = [spread["median"] - spread["min"] for _, spread in points]
    above = [spread["max"] - spread["median"] for _, spread in points]
    axes.errorbar(
        [at + shift for at, _ in points],
        medians,
        yerr=[below, above],
        color=look.colour,
        linestyle=look.line,
        marker=look.marker,
        elinewidth=1.0,
        capsize=2.5,
    )
