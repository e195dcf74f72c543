"""Curves over the measured time: a panel per cell, a line per variant.

Invariant: all lines of a panel come from one pair, the one whose ratio is the median.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidelog_bench.experiment import OverTime
from tidelog_bench.measurement import Points
from tidelog_bench.report.answer import Answer, CellAnswer
from tidelog_bench.report.numbers import number
from tidelog_bench.report.plots.canvas import Panel, Plotted, plain_numbers
from tidelog_bench.report.plots.palette import Look
from tidelog_bench.session.records import TrialRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEIGHT = 240.0
_FEW = 40
"""Points; so few get a marker each."""
_MARKERS = 8
"""On a line of more."""


def plotted(plot: OverTime, answer: Answer, looks: Mapping[str, Look]) -> Plotted:
    """A panel per cell that has the series."""
    panels = []
    for cell in answer.cells:
        trials = [trial for trial in median_pair(cell, answer) if trial.series.get(plot.series)]
        if trials:
            panels.append(_panel(plot, cell.label, trials, looks))
    remark = "The pair whose ratio is the median." if _several(answer) else ""
    if any(
        trial.series.get(name) for name in plot.also for c in answer.cells for trial in c.trials
    ):
        remark = f"{remark} Thin and dotted: {', '.join(map(_spoken, plot.also))}.".strip()
    return Plotted(plot.title, tuple(panels), remark)


def median_pair(cell: CellAnswer, answer: Answer) -> list[TrialRecord]:
    """The trials of the pair whose ratio, or whose first figure, is the median."""
    by_pair: dict[int, dict[str, TrialRecord]] = {}
    for trial in cell.trials:
        by_pair.setdefault(trial.pair, {})[trial.variant] = trial
    most = max(map(len, by_pair.values()))
    whole = [of for of in by_pair.values() if len(of) == most]
    ranked = sorted(whole, key=lambda of: _rank(of, answer))
    chosen = ranked[(len(ranked) - 1) // 2]
    return [chosen[variant] for variant in cell.variants if variant in chosen]


def _rank(of: Mapping[str, TrialRecord], answer: Answer) -> float:
    figures = answer.present(answer.experiment.figures)
    if not figures:
        return 0.0
    name = figures[0].name
    for ratio in answer.experiment.ratios:
        if ratio.over in of and ratio.under in of:
            over, under = of[ratio.over].figures.get(name), of[ratio.under].figures.get(name)
            if over is not None and under:
                return over / under
    return next((t.figures[name] for t in of.values() if name in t.figures), 0.0)


def _panel(
    plot: OverTime, title: str, trials: Sequence[TrialRecord], looks: Mapping[str, Look]
) -> Panel:
    def draw(axes: "Axes") -> None:
        for trial in trials:
            _line(axes, trial.series[plot.series], looks[trial.variant])
            for name in plot.also:
                also = trial.series.get(name, [])
                axes.plot(*_columns(also), color=looks[trial.variant].colour, lw=1.2, ls=":")
        axes.set_xlabel("seconds")
        axes.set_title(plot.unit, loc="left")
        axes.margins(x=0.01)
        if plot.log:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        plain_numbers(axes.xaxis)
        plain_numbers(axes.yaxis, log=plot.log)

    words = "; ".join(_words(trial.variant, trial.series[plot.series], plot) for trial in trials)
    return Panel(title, draw, words, _HEIGHT)


def _line(axes: "Axes", points: Points, look: Look) -> None:
    few = len(points) <= _FEW
    axes.plot(
        *_columns(points),
        color=look.colour,
        # Dashes of a restless line look like gaps.
        linestyle=look.line if few else "-",
        linewidth=1.5,
        marker=look.marker,
        markersize=3.5 if few else 5,
        markevery=1 if few else len(points) // _MARKERS,
    )


def _columns(points: Points) -> tuple[list[float], list[float]]:
    return [at for at, _ in points], [value for _, value in points]


def _words(variant: str, points: Points, plot: OverTime) -> str:
    values = [value for _, value in points]
    return (
        f"{variant}: {len(values)} points over {number(points[-1][0])} s, from "
        f"{number(min(values))} to {number(max(values))} {plot.unit}"
    ).rstrip()


def _several(answer: Answer) -> bool:
    return any(trial.pair for cell in answer.cells for trial in cell.trials)


def _spoken(series: str) -> str:
    return series.replace("_", " ")
