"""Published figures beside what was measured here."""

from collections.abc import Iterable

from tidelog.bench.report.markup import Markup, tag
from tidelog.bench.report.published import Published, Source, published


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
