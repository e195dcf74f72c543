"""The summary at the top: the headline ratio of each experiment."""

import math
from collections.abc import Sequence
from typing import Final

from tidelog_bench.report.chapter import Chapter
from tidelog_bench.report.markup import Markup, tag
from tidelog_bench.report.numbers import number, times
from tidelog_bench.report.verdict import Headline, Verdict, headline

_WIDTH: Final = 150
_EDGE: Final = 8
_FARTHEST: Final = 3.0
"""Decades on either side of 1; what lies beyond is drawn at the edge."""
MARKS: Final = {
    Verdict.BETTER: "\N{BLACK UP-POINTING TRIANGLE}",
    Verdict.WORSE: "\N{BLACK DOWN-POINTING TRIANGLE}",
    Verdict.DIFFERENT: "\N{BLACK DIAMOND}",
    Verdict.EQUAL: "=",
    Verdict.NOISE: "\N{ALMOST EQUAL TO}",
    Verdict.FEW: "?",
}


def overview(chapters: Sequence[Chapter]) -> Markup:
    """A row per experiment."""
    found = [(chapter, headline(chapter.answer)) for chapter in chapters]
    reach = _reach([line for _, line in found if line is not None])
    head = ("Experiment", "Figure", "Compared", "Ratio", "Min to max", "Around 1", "Says")
    return tag(
        "section",
        tag("h2", "Summary", id="summary-title"),
        tag(
            "p",
            "The first ratio of each experiment, over all its cells: the median, and the smallest "
            "and largest of all pairs. Beyond noise are ratios whose pairs all lie on one side "
            "of 1.",
            class_="question",
        ),
        tag(
            "table",
            tag("thead", tag("tr", [tag("th", name, scope="col") for name in head])),
            tag("tbody", [_row(chapter, line, reach) for chapter, line in found]),
            class_="overview",
            aria_labelledby="summary-title",
        ),
        id="summary",
    )


def says(verdict: Verdict | None, text: str) -> Markup:
    """A verdict in words, with a sign and a colour."""
    kind = "mixed" if verdict is None else verdict.name.lower()
    sign = "\N{WHITE DIAMOND}" if verdict is None else MARKS[verdict]
    return tag(
        "span",
        tag("span", sign, aria_hidden="true", class_="sign"),
        f" {text}",
        class_=f"says {kind}",
    )


def _row(chapter: Chapter, line: Headline | None, reach: float) -> Markup:
    experiment = chapter.answer.experiment
    link = tag("a", experiment.title, href=f"#{experiment.name}")
    name = tag("th", link, scope="row")
    if line is None:
        found = any(cell.trials for cell in chapter.answer.cells)
        text = "see its figures" if found else "nothing measured"
        return tag("tr", name, tag("td", text, colspan="6", class_="muted"))
    figure = f"{line.figure.title}, {line.figure.unit}" if line.figure.unit else line.figure.title
    return tag(
        "tr",
        name,
        tag("td", figure, class_="figure"),
        tag("td", line.ratio, class_="compared"),
        tag("td", tag("strong", times(line.median)), class_="number ratio"),
        tag("td", _between(line), class_="number range"),
        tag("td", _forest(line, reach), class_="forest"),
        tag("td", says(line.verdict, line.says), class_="verdict"),
    )


def _between(line: Headline) -> str:
    low, high = number(line.low), number(line.high)
    return low if low == high else f"{low} to {high}"


def _reach(lines: Sequence[Headline]) -> float:
    """Decades on either side of 1 that all ratios need."""
    farthest = max((abs(_decades(at)) for line in lines for at in (line.low, line.high)), default=0)
    return min(max(farthest, 0.3), _FARTHEST)


def _decades(ratio: float) -> float:
    if ratio <= 0:
        return -_FARTHEST
    return max(-_FARTHEST, min(math.log10(ratio), _FARTHEST))


def _forest(line: Headline, reach: float) -> Markup:
    """Min to max as a line, the median as a dot, 1 as the middle; logarithmic."""

    def x(ratio: float) -> str:
        place = max(-reach, min(_decades(ratio), reach)) / reach
        return f"{_WIDTH / 2 + place * (_WIDTH / 2 - _EDGE):.1f}"

    shapes = [
        tag("line", x1=_WIDTH // 2, x2=_WIDTH // 2, y1=0, y2=20, class_="one"),
        tag("line", x1=x(line.low), x2=x(line.high), y1=10, y2=10, class_="reach"),
        tag("circle", cx=x(line.median), cy=10, r=4),
    ]
    kind = "mixed" if line.verdict is None else line.verdict.name.lower()
    return tag(
        "svg", shapes, viewBox=f"0 0 {_WIDTH} 20", class_=f"around {kind}", aria_hidden="true"
    )
