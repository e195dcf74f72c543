"""Units and short titles of figures, also of those that an experiment plots but does not list."""

from collections.abc import Sequence

from tidelog_bench.experiment import Figure
from tidelog_bench.report.answer import Answer
from tidelog_bench.report.numbers import unit_of_name


def unit_of(figure: str, answer: Answer) -> str:
    """As the experiment says, else by the ending of the name."""
    known = _listed(figure, answer)
    return known.unit if known is not None else unit_of_name(figure)


def title_of(figure: str, answer: Answer) -> str:
    """As the experiment says, else the name without underscores."""
    known = _listed(figure, answer)
    return known.title if known is not None else figure.replace("_", " ")


def _listed(figure: str, answer: Answer) -> Figure | None:
    return next((known for known in answer.experiment.figures if known.name == figure), None)


def short_titles(figures: Sequence[str], answer: Answer) -> list[str]:
    """Titles without the words with which all of them begin or end."""
    words = [title_of(figure, answer).split() for figure in figures]
    while len(words) > 1 and all(len(w) > 1 and w[0] == words[0][0] for w in words):
        words = [w[1:] for w in words]
    while len(words) > 1 and all(len(w) > 1 and w[-1] == words[0][-1] for w in words):
        words = [w[:-1] for w in words]
    return [" ".join(w) for w in words]
