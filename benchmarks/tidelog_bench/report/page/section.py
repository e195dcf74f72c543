"""A section per experiment: question, plots, tables, what is missing, what others published."""

from collections.abc import Iterable, Iterator

from tidelog_bench.report.chapter import Chapter
from tidelog_bench.report.markup import Markup, tag
from tidelog_bench.report.numbers import setting
from tidelog_bench.report.page.figures import figures
from tidelog_bench.report.page.tables import every_pair, numbers
from tidelog_bench.report.published import Published, Source, published

_LINES = 12
"""How many lines of an error are shown: the last ones."""


def section(chapter: Chapter, several: bool) -> Markup:
    """One experiment; `several` sessions: say which one it is from."""
    answer = chapter.answer
    experiment = answer.experiment
    aside = beside(experiment.name)
    body = [figures(answer), numbers(answer), every_pair(answer)]
    if not answer.cells:
        body = [tag("p", "Nothing has been measured.", class_="muted")]
    measured = tag("div", body, list(_remarks(chapter)), _settings(chapter, several))
    return tag(
        "section",
        tag(
            "h2",
            experiment.title,
            " ",
            tag("code", experiment.name),
            id=f"{experiment.name}-heading",
        ),
        tag("p", experiment.question, class_="question"),
        tag("div", measured, aside, class_="columns" if aside else None),
        id=experiment.name,
        aria_labelledby=f"{experiment.name}-heading",
        class_="experiment",
    )


def _remarks(chapter: Chapter) -> Iterator[Markup]:
    answer = chapter.answer
    if chapter.missing:
        items = [tag("li", sentence) for sentence in chapter.missing]
        yield tag("div", tag("p", "Incomplete; recorded are:"), tag("ul", items), class_="note")
    if answer.skipped:
        items = [
            tag("li", tag("strong", skip.variant), f": {skip.reason}") for skip in answer.skipped
        ]
        yield tag("div", tag("p", "Skipped here:"), tag("ul", items), class_="note")
    for failure in answer.failures:
        name = f"{failure.variant}, pair {failure.pair + 1}"
        text = "\n".join(failure.error.strip().splitlines()[-_LINES:])
        yield tag(
            "div", tag("p", f"Failed: {name}"), tag("pre", text, tabindex=0), class_="note bad"
        )


def _settings(chapter: Chapter, several: bool) -> Markup | None:
    shared = [tag("li", setting(name, of)) for name, of in sorted(chapter.answer.common.items())]
    if several:
        shared.append(tag("li", f"session {chapter.session.session}"))
    if not shared:
        return None
    return tag(
        "details",
        tag("summary", "Settings of all cells"),
        tag("ul", shared, class_="settings"),
    )


def beside(experiment: str) -> Markup | None:
    """What others have published about the same question; None where nothing was found."""
    found = published(experiment)
    if not found:
        return None
    sources = list(dict.fromkeys(figure.source for figure in found))
    return tag(
        "aside",
        tag("h3", "Published"),
        tag(
            "p",
            "By others, on other machines, with other state and another store: the direction "
            "can be compared, the size cannot.",
            class_="remark-small",
        ),
        [_source(source, [f for f in found if f.source == source]) for source in sources],
        class_="published",
        aria_label="Published figures",
    )


def _source(source: Source, figures: Iterable[Published]) -> Markup:
    figures = list(figures)
    both = any(figure.change is None for figure in figures)
    head = ["", "off", "on"] if both else ["", "on instead of off"]
    return tag(
        "div",
        tag(
            "table",
            tag("thead", tag("tr", [tag("th", name, scope="col") for name in head])),
            tag("tbody", [_row(figure, both) for figure in figures]),
        ),
        tag("p", tag("a", source.title, href=source.url), class_="source"),
        tag("p", f"Setup: {source.setup}.", class_="setup"),
    )


def _row(figure: Published, both: bool) -> Markup:
    what = tag("th", figure.what, scope="row")
    if figure.change is not None:
        change = figure.change.replace("-", "\N{MINUS SIGN}", 1).replace(" ", "\N{NO-BREAK SPACE}")
        return tag("tr", what, tag("td", change, class_="number", colspan=2 if both else None))
    return tag(
        "tr",
        what,
        tag("td", figure.off, class_="number"),
        tag("td", figure.on, class_="number"),
    )
