"""The summary of a session as plain text.

Invariant: no line is longer than 100 columns, however many figures there are.
"""

import textwrap
from collections.abc import Iterator
from typing import Final

from tidelog_bench.experiment import Figure
from tidelog_bench.report.answer import Answer, CellAnswer, Report
from tidelog_bench.report.declared import ABSENT, limit, quoted
from tidelog_bench.report.numbers import ENOUGH, Spread, few, number, span, times, verdict

WIDTH: Final = 100
_FIGURES: Final = 6
"""The first ones of a cell; the page has all."""
_MARK: Final = "*"


def summary(report: Report) -> list[str]:
    """Lines: per experiment, cell and figure the medians with min and max, and the ratios."""
    answers = report.answers
    lines = [line for answer in answers for line in _experiment(answer)]
    if not lines:
        return ["nothing has been measured yet"]
    lines = [*_targets(report), *lines]
    lines.append("median (min and max); ratios are formed pair by pair")
    lines.append(f"{_MARK} beyond noise: all of at least {ENOUGH} pairs on the same side of 1")
    pairs = min(answer.session.pairs for answer in answers)
    if pairs < ENOUGH:
        lines.append(f"{few(pairs)}: the numbers mean little")
    return lines


def _targets(report: Report) -> Iterator[str]:
    results = report.targets
    for target in results:
        if target["spread"] is not None:
            shown = quoted(target["spread"], target["figure"], target["of"])
            text = f"{target['says']}: {target['text']}, {target['of']}: {shown}, {limit(target)}"
            yield from _wrapped("", text)
    absent = sum(target["spread"] is None for target in results)
    yield f"{absent} of {len(results)} targets: {ABSENT} in these sessions"
    yield ""


def _experiment(answer: Answer) -> Iterator[str]:
    if not (answer.cells or answer.skipped or answer.missing or answer.failures):
        return
    yield from _wrapped("", f"{answer.experiment.name}: {answer.experiment.title}")
    if answer.cells:
        yield from _wrapped("  ", answer.age)
    for cell in answer.cells:
        if cell.label:
            yield from _wrapped("  ", cell.label)
        for figure in cell.figures[:_FIGURES]:
            title = f"{figure.title} {figure.unit}".rstrip()
            yield from _wrapped("    ", f"{title}: {'; '.join(_values(cell, figure))}")
    for skip in answer.skipped:
        yield from _wrapped("  ", f"{skip.variant}: skipped, {skip.reason}")
    for sentence in answer.missing:
        yield from _wrapped("  ", f"incomplete: {sentence}")
    for failure in answer.failures:
        last = failure.error.strip().splitlines()[-1:] or ["no reason given"]
        yield from _wrapped("  ", f"{failure.variant}, pair {failure.pair + 1}: FAILED, {last[0]}")
    yield ""


def _values(cell: CellAnswer, figure: Figure) -> Iterator[str]:
    for variant, of in cell.medians.items():
        if found := of.get(figure.name):
            yield f"{variant} {_between(number(found['median']), found)}"
    for name, of in cell.ratios.items():
        if found := of.get(figure.name):
            mark = _MARK if verdict(found, figure).beyond_noise else ""
            yield f"{name} {_between(times(found['median']), found)}{mark}"


def _between(median: str, spread: Spread) -> str:
    between = span(spread)
    return f"{median} ({between})" if between else median


def _wrapped(indent: str, text: str) -> list[str]:
    """Break between words."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}    ",
        break_on_hyphens=False,
    )
