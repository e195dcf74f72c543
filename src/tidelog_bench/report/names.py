"""Units and short titles of figures, also of those that an experiment plots but does not list."""

from collections.abc import Sequence
from typing import Final

from tidelog_bench.report.answer import Answer

_UNITS: Final = {
    "_ms": "ms",
    "_s": "s",
    "_mb": "MB",
    "_kb": "kB",
    "_gb": "GB",
    "_bytes": "bytes",
    "_per_s": "/s",
    "dollars_per_day": "$ a day",
}


def unit_of(figure: str, answer: Answer) -> str:
    """As the experiment says, else by the ending of the name."""
    for known in answer.experiment.figures:
        if known.name == figure:
            return known.unit
    endings = [ending for ending in _UNITS if figure.endswith(ending)]
    return _UNITS[max(endings, key=len)] if endings else ""


def title_of(figure: str, answer: Answer) -> str:
    """As the experiment says, else the name without underscores."""
    for known in answer.experiment.figures:
        if known.name == figure:
            return known.title
    return figure.replace("_", " ")


def short_titles(figures: Sequence[str], answer: Answer) -> list[str]:
    """Titles without the words with which all of them begin or end."""
    words = [title_of(figure, answer).split() for figure in figures]
    while len(words) > 1 and all(len(w) > 1 and w[0] == words[0][0] for w in words):
        words = [w[1:] for w in words]
    while len(words) > 1 and all(len(w) > 1 and w[-1] == words[0][-1] for w in words):
        words = [w[:-1] for w in words]
    return [" ".join(w) for w in words]
