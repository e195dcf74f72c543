"""A section per experiment: question, plots, tables, what is missing, what others published."""

from collections.abc import Iterator

from tidelog.bench.report.chapter import Chapter
from tidelog.bench.report.markup import Markup, tag
from tidelog.bench.report.numbers import setting
from tidelog.bench.report.page.beside import beside
from tidelog.bench.report.page.figures import figures
from tidelog.bench.report.page.tables import every_pair, numbers

_LINES = 12
"""Of an error; its last ones."""


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
