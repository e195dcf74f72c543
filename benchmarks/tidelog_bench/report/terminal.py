"""The summary of a session as plain text.

Invariant: no line is longer than 100 columns, however many figures there are; names are cut
before numbers are.
"""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from tidelog_bench.experiment import Experiment, Figure
from tidelog_bench.measurement import own
from tidelog_bench.report.answer import Answer, CellAnswer, answer
from tidelog_bench.report.numbers import number, settings, span, times
from tidelog_bench.report.verdict import ENOUGH, few, verdict
from tidelog_bench.session.records import Record, SessionRecord

WIDTH: Final = 100
_FIGURES: Final = 6
"""The first ones of an experiment; the page has all."""
_GAP: Final = "  "
_INDENT: Final = "   "
_MARK: Final = "*"
_NAME: Final = 34

_Column = list[str]


def summary(records: Iterable[Record], experiments: Iterable[Experiment]) -> list[str]:
    """Lines: per experiment and cell the medians with min and max, and the ratios."""
    kept = list(records)
    lines: list[str] = []
    for experiment in experiments:
        lines += _experiment(answer(experiment, kept))
    if not lines:
        return ["nothing has been measured yet"]
    return [*lines, *_legend(kept)]


def _experiment(found: Answer) -> Iterator[str]:
    if not (found.cells or found.skipped or found.cut or found.failures):
        return
    yield _cut(f"{found.experiment.name}: {found.experiment.title}", WIDTH)
    figures = found.present(found.experiment.figures)[:_FIGURES]
    for cell in found.cells:
        if cell.label:
            yield _cut(f"  {cell.label}", WIDTH)
        yield from _cell(cell, figures)
    for skip in found.skipped:
        yield from _wrapped(f"{skip.variant}: skipped, {skip.reason}")
    for cut in found.cut:
        where = settings(own(cut.settings, found.common))
        of = f" of {where}" if where else ""
        yield from _wrapped(f"pair {cut.pair + 1}{of}: cut, {cut.reason}")
    for failure in found.failures:
        last = failure.error.strip().splitlines()[-1:] or ["no reason given"]
        yield _cut(f"  {failure.variant}, pair {failure.pair + 1}: FAILED, {last[0]}", WIDTH)
    yield ""


def _cell(cell: CellAnswer, figures: Sequence[Figure]) -> Iterator[str]:
    """Columns for as many variants and ratios as fit, then the others below."""
    columns = [_titles(figures), *_columns(cell, figures)]
    widths = [max(map(len, column)) for column in columns]
    widths[0] = min(widths[0], _NAME)
    for first, last in _blocks(widths):
        for row in zip(*columns, strict=True):
            cells = [_cut(row[0], widths[0]).ljust(widths[0])]
            cells += [row[at].rjust(widths[at]) for at in range(first, last)]
            yield f"{_INDENT}{_GAP.join(cells)}".rstrip()


def _titles(figures: Iterable[Figure]) -> _Column:
    return ["", *(f"{figure.title} {figure.unit}".rstrip() for figure in figures)]


def _columns(cell: CellAnswer, figures: Sequence[Figure]) -> Iterator[_Column]:
    for variant, of in cell.figures.items():
        yield [_cut(variant, _NAME), *(_spread(of.get(figure.name)) for figure in figures)]
    for name, of_ratio in cell.ratios.items():
        ratios = (_ratio(of_ratio.get(figure.name), figure) for figure in figures)
        yield [_cut(f"{name} ", _NAME), *ratios]


def _blocks(widths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ranges of columns after the first that fit into a line; at least one each."""
    first = 1
    while first < len(widths):
        last, used = first, len(_INDENT) + widths[0]
        while last < len(widths) and (last == first or used + len(_GAP) + widths[last] <= WIDTH):
            used += len(_GAP) + widths[last]
            last += 1
        yield first, last
        first = last


def _spread(spread: Mapping[str, float] | None) -> str:
    if spread is None:
        return "-"
    text = number(spread["median"])
    return f"{text} ({span(spread)})" if span(spread) else text


def _ratio(ratio: Mapping[str, Any] | None, figure: Figure) -> str:
    if ratio is None:
        return "-"
    text, between = times(ratio["median"]), span(ratio)
    text = f"{text} ({between})" if between else text
    return text + (_MARK if verdict(ratio, figure).beyond_noise else " ")


def _legend(records: Iterable[Record]) -> Iterator[str]:
    yield "median (min and max); ratios are formed pair by pair"
    yield f"{_MARK} beyond noise: all of at least {ENOUGH} pairs on the same side of 1"
    sessions = [record for record in records if isinstance(record, SessionRecord)]
    if sessions and sessions[0].pairs < ENOUGH:
        yield f"{few(sessions[0].pairs)}: the numbers mean little"


def _wrapped(text: str) -> list[str]:
    """Break a long reason between words."""
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="      ")


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
