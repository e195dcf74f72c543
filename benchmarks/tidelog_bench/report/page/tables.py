"""Tables of an experiment: medians and ratios per cell, and every pair.

Invariant: each table scrolls in a box of its own, so the page never does sideways.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tidelog_bench.experiment import Figure
from tidelog_bench.report.answer import Answer, CellAnswer
from tidelog_bench.report.markup import Child, Markup, tag
from tidelog_bench.report.numbers import number, span, times
from tidelog_bench.report.page.overview import says
from tidelog_bench.report.verdict import Verdict, verdict
from tidelog_bench.statistics import Spread


def numbers(answer: Answer) -> Markup | None:
    """Per cell a row per variant and a row per ratio, a column per figure."""
    figures = answer.present(answer.experiment.figures)
    if not figures:
        return None
    rows = [
        row
        for cell in answer.cells
        for row in (
            *_group(cell, len(figures)),
            *(_variant(variant, of, figures) for variant, of in cell.figures.items()),
            *(_ratio(name, of, figures) for name, of in cell.ratios.items()),
        )
    ]
    several = any(trial.pair for cell in answer.cells for trial in cell.trials)
    caption = "Medians and ratios" + (", min and max below" if several else "")
    return _box(caption, "Variant", figures, rows)


def every_pair(answer: Answer) -> Markup | None:
    """The ratio of each pair, folded away."""
    figures = _divided(answer)
    rows = [
        row
        for cell in answer.cells
        if any(spread["n"] > 1 for of in cell.ratios.values() for spread in of.values())
        for row in (*_group(cell, len(figures)), *_pairs(cell, figures))
    ]
    if not rows:
        return None
    return tag(
        "details",
        tag("summary", "Every pair"),
        _box("The ratio of each pair", "Pair", figures, rows),
    )


def _divided(answer: Answer) -> list[Figure]:
    given = {name for cell in answer.cells for of in cell.ratios.values() for name in of}
    return [figure for figure in answer.experiment.figures if figure.name in given]


def _box(caption: str, first: str, figures: Sequence[Figure], rows: Sequence[Markup]) -> Markup:
    head = [
        tag(
            "th",
            figure.title,
            tag("span", figure.unit, class_="unit") if figure.unit else None,
            scope="col",
        )
        for figure in figures
    ]
    table = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", tag("th", first, scope="col"), head)),
        tag("tbody", rows),
    )
    return tag("div", table, class_="box", role="region", aria_label=caption, tabindex=0)


def _group(cell: CellAnswer, columns: int) -> Iterator[Markup]:
    if cell.label:
        name = tag("span", cell.label)
        yield tag("tr", tag("th", name, colspan=columns + 1, scope="rowgroup"), class_="group")


def _variant(name: str, of: Mapping[str, Spread], figures: Sequence[Figure]) -> Markup:
    cells = [_spread(of.get(figure.name)) for figure in figures]
    return tag("tr", tag("th", name, scope="row"), cells)


def _spread(spread: Spread | None) -> Markup:
    if spread is None:
        return _number("\N{EM DASH}")
    return _number(number(spread["median"]), _below(span(spread)))


def _ratio(name: str, of: Mapping[str, Mapping[str, Any]], figures: Sequence[Figure]) -> Markup:
    cells = []
    for figure in figures:
        ratio = of.get(figure.name)
        if ratio is None:
            cells.append(_number("\N{EM DASH}"))
            continue
        said = verdict(ratio, figure)
        # Of a session with few pairs the header says so, once.
        words = says(said, said) if said is not Verdict.FEW else None
        cells.append(_number(times(ratio["median"]), _below(span(ratio)), words))
    return tag("tr", tag("th", name, scope="row"), cells, class_="ratios")


def _pairs(cell: CellAnswer, figures: Sequence[Figure]) -> Iterator[Markup]:
    for name, of in cell.ratios.items():
        columns = [of.get(figure.name, {}).get("pairs", []) for figure in figures]
        for at in range(max(map(len, columns), default=0)):
            found = [times(pairs[at]) if at < len(pairs) else "\N{EM DASH}" for pairs in columns]
            row = tag("th", f"{name}, {at + 1}", scope="row")
            yield tag("tr", row, [_number(text) for text in found])


def _below(text: str) -> Markup | None:
    return tag("span", text, class_="span") if text else None


def _number(*children: Child) -> Markup:
    return tag("td", *children, class_="number")
