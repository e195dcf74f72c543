"""All plots of an answer: those of the experiment, and the cost per day where it is measured."""

from collections.abc import Iterator, Mapping
from typing import Final, assert_never

from tidelog.bench.experiment import Against, Bars, Distribution, OverTime, Plot
from tidelog.bench.report.answer import Answer
from tidelog.bench.report.plots import against, bars, distribution, over_time
from tidelog.bench.report.plots.palette import Look
from tidelog.bench.report.plots.panel import Plotted

_COST: Final = "dollars_per_day"


def plots(answer: Answer, looks: Mapping[str, Look]) -> Iterator[Plotted]:
    """Only those that have something to show, and nothing twice."""
    asked: list[Plot] = list(answer.experiment.plots)
    listed = {figure.name for figure in answer.experiment.figures}
    drawn = {plot.figure for plot in asked if isinstance(plot, Against | Bars)}
    if _COST in listed - drawn:
        asked.append(Bars(_COST, "Cost per day"))
    told: set[tuple[object, ...]] = set()
    for plot in asked:
        plotted = _plotted(plot, answer, looks)
        # A line that became bars, for want of a second place, may have been bars before.
        subject = plot.figure if isinstance(plot, Against | Bars) else plot
        said = (subject, *(panel.words for panel in plotted.panels))
        if plotted.panels and said not in told:
            told.add(said)
            yield plotted


def _plotted(plot: Plot, answer: Answer, looks: Mapping[str, Look]) -> Plotted:
    match plot:
        case OverTime():
            return over_time.plotted(plot, answer, looks)
        case Against():
            return against.plotted(plot, answer, looks)
        case Bars():
            return bars.plotted(plot, answer, looks)
        case Distribution():
            return distribution.plotted(plot, answer, looks)
    assert_never(plot)
