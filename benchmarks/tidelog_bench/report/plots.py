"""Plots of a report: matplotlib's SVG, in the colours of the page.

Invariants: bars stand in the order of the legend and have their numbers, so that no reader depends
on colours; a drawing has variables of the style sheet for colours, and no id that another one has;
matplotlib is loaded when a plot is drawn and not before.
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tidelog_bench.experiment import Bars
from tidelog_bench.report.answer import Answer, CellAnswer
from tidelog_bench.report.numbers import number
from tidelog_bench.report.statistics import Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK, _MUTED, _GRID = "#010203", "#010204", "#010205"
_COLOURS: Final = tuple(f"#0102{16 + at:02x}" for at in range(8))
_VARIABLES: Final = {_INK: "var(--ink)", _MUTED: "var(--muted)", _GRID: "var(--grid)"} | {
    colour: f"var(--v{at})" for at, colour in enumerate(_COLOURS)
}
"""Placeholders of a drawing, and what the style sheet has for them, light and dark."""
_OURS: Final = ("on", "tidelog")
_SETTINGS: Final[Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": _MUTED,
    "axes.grid": True,
    "axes.labelcolor": _MUTED,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": _MUTED,
    "axes.titlesize": 13,
    "figure.dpi": 72,
    "font.family": "sans-serif",
    "font.size": 13,
    "grid.color": _GRID,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "text.color": _INK,
    "text.parse_math": False,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
}
_WIDTH: Final = 440.0
_BAR: Final = 20.0
_LABEL: Final = 60
"""Characters of a group's name that a drawing has room for ..."""
_NAME: Final = 30
"""... and of a variant's in a legend."""
_Group = tuple[str, dict[str, Spread]]


def colours(variants: Iterable[str]) -> dict[str, str]:
    """Placeholders: the same for what is measured in all experiments, others in their order."""
    names = list(variants)
    ours = [name for name in names if name in _OURS][:1]
    ordered = [*ours, *(name for name in names if name not in ours)]
    numbered = enumerate(ordered, 0 if ours else 1)
    return {name: _COLOURS[at % len(_COLOURS)] for at, name in numbered}


@dataclass(frozen=True, slots=True)
class Panel:
    """A drawing: a plot of one cell, or of all."""

    title: str
    """Which cell; empty when there is only one."""
    words: str
    """The alternative text."""
    height: float
    draw: "Callable[[Axes], None]"


@dataclass(frozen=True, slots=True)
class Plotted:
    """A plot with its panels."""

    title: str
    remark: str
    """How to read it."""
    panels: tuple[Panel, ...]


def plots(answer: Answer) -> Iterator[Plotted]:
    """The plots of an experiment that have something to show."""
    known = colours(answer.variants)
    for plot in answer.experiment.plots:
        found = _bars(plot, answer, known)
        if found.panels:
            yield found


def svg(panel: Panel, name: str) -> str:
    """Draw a panel; `name` must be the only one of the page."""
    # Heavy: only a page pays for it.
    from matplotlib import rc_context  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with rc_context(_SETTINGS | {"svg.hashsalt": name}):
        figure = Figure((_WIDTH / 72, panel.height / 72), layout="constrained")
        axes = figure.add_subplot()
        panel.draw(axes)
        if names := axes.get_legend_handles_labels()[1]:
            columns = max(1, _LABEL // (max(map(len, names)) + 7))
            figure.legend(loc="outside upper left", ncols=columns, handlelength=3)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue()
    for placeholder, variable in _VARIABLES.items():
        text = text.replace(placeholder, variable)
    # Groups have the same ids in every drawing, and more digits than a screen has dots.
    text = re.sub(r'<g id="[^"]*"', "<g", text[text.index("<svg") :])
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r"font-family: [^;\"]*;? ?", "", text)
    return re.sub(r"(\d+\.\d)\d+", r"\1", text)


def _bars(plot: Bars, answer: Answer, known: Mapping[str, str]) -> Plotted:
    """One figure: a group per cell; several: a panel per cell with a group per figure."""
    listed = {figure.name: figure for figure in answer.experiment.figures}
    cells, first = answer.cells, plot.figures[0]
    grouped = [("", [(cell.label, _of_figure(cell, first)) for cell in cells])]
    if len(plot.figures) > 1:
        grouped = [
            (cell.label, [(listed[name].title, _of_figure(cell, name)) for name in plot.figures])
            for cell in cells
        ]
    panels = [_bars_of(plot, title, of, listed[first].unit, known) for title, of in grouped]
    several = any(trial.pair for cell in answer.cells for trial in cell.trials)
    remark = "Medians; lines from min to max." if several else ""
    return Plotted(plot.title, remark, tuple(panel for panel in panels if panel.words))


def _of_figure(cell: CellAnswer, figure: str) -> dict[str, Spread]:
    return {variant: of[figure] for variant, of in cell.medians.items() if figure in of}


def _bars_of(
    plot: Bars, title: str, found: Sequence[_Group], unit: str, known: Mapping[str, str]
) -> Panel:
    groups = [(label, bars) for label, bars in found if bars]

    def draw(axes: "Axes") -> None:
        spreads = [spread for _, bars in groups for spread in bars.values()]
        log = plot.log and min(spread["min"] for spread in spreads) > 0
        axes.set_xscale("log" if log else "linear")
        labelled, y, named = set[str](), 0.0, []
        for label, bars in groups:
            named.append((y, label))
            y += 1
            for variant, spread in bars.items():
                legend = None if variant in labelled else _cut(variant, _NAME)
                labelled.add(variant)
                reach = [[spread["median"] - spread["min"]], [spread["max"] - spread["median"]]]
                look: Any = {"color": known[variant], "label": legend, "ecolor": _INK}
                axes.barh(y, spread["median"], 0.7, xerr=reach, **look)
                shown = f" {number(spread['median'])}"
                axes.text(spread["max"], y, shown, va="center", fontsize=11)
                y += 1
        # Room for the number after the longest bar.
        axes.margins(x=0.2)
        for at, label in named:
            short = _cut(label, _LABEL)
            name = axes.text(0, at, short, va="center", transform=axes.get_yaxis_transform())
            name.set_in_layout(False)
        axes.set_ylim(y - 0.4, -0.6)
        axes.set_yticks([])
        axes.set_title(unit, loc="left")
        _plain_numbers(axes.xaxis, log)

    rows = sum(1 + len(bars) for _, bars in groups)
    words = "; ".join(
        f"{label or 'all'}: "
        + ", ".join(
            f"{variant} {number(spread['median'])} {unit}".rstrip()
            for variant, spread in bars.items()
        )
        for label, bars in groups
    )
    return Panel(title, words, rows * _BAR + 100, draw)


def _plain_numbers(axis: Any, log: bool) -> None:
    """Tick labels as in the tables."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # noqa: PLC0415

    if log:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, at: number(value)))
    axis.set_minor_formatter(NullFormatter())


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
