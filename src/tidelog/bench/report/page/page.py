"""The whole page as text."""

from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Final, Protocol

from tidelog.bench.report.chapter import Chapter, Told
from tidelog.bench.report.markup import Markup, tag
from tidelog.bench.report.page.header import header
from tidelog.bench.report.page.overview import overview
from tidelog.bench.report.page.section import section

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""A browser that obeys it loads nothing, whatever a record contains."""
_GROUPS: Final = {
    "embedded": "Embedded runtime",
    "spark": "Spark",
    "peers": "Peers",
    "more": "More",
}


class Progress(Protocol):
    """Is told how many chapters are drawn; nothing else takes time."""

    def __call__(self, done: int, total: int) -> None: ...


def _silent(done: int, total: int) -> None:
    """Nobody asked."""


def page(
    told: Sequence[Told],
    chapters: Sequence[Chapter],
    unknown: Sequence[str],
    progress: Progress = _silent,
) -> str:
    """HTML; `unknown` experiments are in a session but not in this version of the library."""
    style = files("tidelog.bench.report.page").joinpath("style.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("title", f"Benchmark report {told[0].session.session}"),
        tag("style", Markup(style)),
    )
    body = tag(
        "body",
        header(told),
        _contents(chapters),
        tag(
            "main",
            overview(chapters),
            _sections(chapters, len(told) > 1, progress),
            [tag("p", f"{name}: not known to this version.", class_="note") for name in unknown],
        ),
        _footer(),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _sections(chapters: Sequence[Chapter], several: bool, progress: Progress) -> Iterator[Markup]:
    for done, chapter in enumerate(chapters):
        progress(done, len(chapters))
        yield section(chapter, several)


def _contents(chapters: Sequence[Chapter]) -> Markup | None:
    groups: dict[str, list[Markup]] = {}
    for chapter in chapters:
        experiment = chapter.answer.experiment
        link = tag("a", experiment.name, href=f"#{experiment.name}")
        groups.setdefault(experiment.group, []).append(tag("li", link))
    items = [
        tag("li", tag("span", _GROUPS[group], class_="group"), tag("ul", links))
        for group, links in groups.items()
    ]
    return tag("nav", tag("ul", items), aria_label="Experiments") if items else None


def _footer() -> Markup:
    return tag(
        "footer",
        tag(
            "p",
            "The variants of a pair ran one after the other in fresh processes, in reverse order "
            "every other time, with the same seed; the warm-up does not count. All numbers come "
            "from the session's records.",
        ),
    )
