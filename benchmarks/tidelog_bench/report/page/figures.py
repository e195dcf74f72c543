"""Plots of an experiment on the page: a legend, and each panel in the widths it needs.

Invariant: a panel is drawn for a phone and, when it is the only one of its plot, for a wide page
as well; the style sheet shows one of the two.
"""

from collections.abc import Iterator, Mapping
from typing import Final, assert_never

from tidelog_bench.experiment import Against, Bars, Distribution, OverTime, Plot
from tidelog_bench.report.answer import Answer
from tidelog_bench.report.markup import Markup, join, tag
from tidelog_bench.report.plots import bars, lines, over_time
from tidelog_bench.report.plots.canvas import Panel, Plotted, svg
from tidelog_bench.report.plots.palette import Look, looks

_NARROW: Final = 340.0
_WIDE: Final = 700.0
_SHOWN: Final = 6
"""Panels of a plot; the others are folded away."""
_SIGNS: Final = {
    "o": '<circle cx="17" cy="6" r="3.4"/>',
    "s": '<rect x="13.8" y="2.8" width="6.4" height="6.4"/>',
    "^": '<path d="M17 2l4 7.4h-8z"/>',
    "D": '<path d="M17 1.6l4.4 4.4-4.4 4.4-4.4-4.4z"/>',
    "v": '<path d="M17 10l4-7.4h-8z"/>',
    "P": '<path d="M15.6 2h2.8v2.6h2.6v2.8h-2.6v2.6h-2.8v-2.6h-2.6v-2.8h2.6z"/>',
    "X": '<path d="M14.4 2.2l2.6 2.4 2.6-2.4 1.6 1.6-2.4 2.2 2.4 2.2-1.6 1.6-2.6-2.4-2.6 2.4'
    '-1.6-1.6 2.4-2.2-2.4-2.2z"/>',
    "*": '<path d="M17 1l1.4 3.4 3.6.2-2.8 2.4.9 3.6-3.1-2-3.1 2 .9-3.6-2.8-2.4 3.6-.2z"/>',
}


def figures(answer: Answer) -> Markup | None:
    """All plots of an experiment that have something to show."""
    known = looks(answer.variants)
    drawn = [
        _plot(plotted, f"{answer.experiment.name}-{at}")
        for at, plotted in enumerate(plots(answer, known))
    ]
    return join(_legend(known), drawn) if drawn else None


def _legend(known: Mapping[str, Look]) -> Markup:
    return tag(
        "ul", [tag("li", _swatch(look), name) for name, look in known.items()], class_="legend"
    )


def _swatch(look: Look) -> Markup:
    dash = " ".join(str(length * 1.6) for length in look.dash) or None
    line = tag("line", x1=0, x2=34, y1=6, y2=6, stroke_width=2, stroke_dasharray=dash)
    return tag(
        "svg",
        line,
        Markup(_SIGNS[look.marker]),
        viewBox="0 0 34 12",
        class_="swatch",
        style=f"color: var(--v{look.slot})",
        aria_hidden="true",
    )


def _plot(plotted: Plotted, name: str) -> Markup:
    alone = len(plotted.panels) == 1
    panels = [
        _panel(panel, f"{name}-{at}", plotted.title, alone)
        for at, panel in enumerate(plotted.panels)
    ]
    more = panels[_SHOWN:]
    folded = tag(
        "details",
        tag("summary", f"{len(more)} more"),
        tag("div", more, class_="panels"),
    )
    return tag(
        "div",
        tag("h3", plotted.title),
        tag("p", plotted.remark, class_="remark-small") if plotted.remark else None,
        tag("div", panels[:_SHOWN], class_="panels alone" if alone else "panels"),
        folded if more else None,
        class_="plotted",
    )


def _panel(panel: Panel, name: str, title: str, alone: bool) -> Markup:
    whole = f"{title}: {panel.title}" if panel.title else title
    drawings = [tag("div", Markup(svg(panel, _NARROW, f"{name}-n", whole)), class_="narrow")]
    if alone:
        wide = Markup(svg(panel, _WIDE, f"{name}-w", whole))
        drawings.append(tag("div", wide, class_="wide"))
    caption = tag("figcaption", panel.title) if panel.title else None
    return tag("figure", caption, drawings)


_COST: Final = "dollars_per_day"


def plots(answer: Answer, looks: Mapping[str, Look]) -> Iterator[Plotted]:
    """Only those that have something to show, and nothing twice."""
    asked: list[Plot] = list(answer.experiment.plots)
    listed = {figure.name for figure in answer.experiment.figures}
    drawn = {plot.figure for plot in asked if isinstance(plot, Against | Bars)}
    if _COST in listed - drawn:
        asked.append(Bars(_COST, "Cost per day"))
    shown: set[tuple[object, ...]] = set()
    for plot in asked:
        plotted = _plotted(plot, answer, looks)
        # A line that became bars, for want of a second place, may have been bars before.
        subject = plot.figure if isinstance(plot, Against | Bars) else plot
        said = (subject, *(panel.words for panel in plotted.panels))
        if plotted.panels and said not in shown:
            shown.add(said)
            yield plotted


def _plotted(plot: Plot, answer: Answer, looks: Mapping[str, Look]) -> Plotted:
    match plot:
        case OverTime():
            return over_time.plotted(plot, answer, looks)
        case Against():
            return lines.against(plot, answer, looks)
        case Bars():
            return bars.plotted(plot, answer, looks)
        case Distribution():
            return lines.distribution(plot, answer, looks)
    assert_never(plot)
