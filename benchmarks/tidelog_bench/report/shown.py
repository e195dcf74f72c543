"""What a report shows, as one page of HTML with plots, as JSON, and as plain text.

Invariants: the page loads nothing and runs nothing, whatever a record contains; bars have their
names and numbers beside them, so nobody depends on colours or lengths; no line of the text is
longer than 100 columns, however many figures there are.
"""

import math
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from tidelog.cli.output import fields_of
from tidelog.errors import optional_library
from tidelog_bench.experiment import Bars, Figure, Size
from tidelog_bench.report.answer import Answer, CellAnswer, Report
from tidelog_bench.report.declared import ABSENT, limit, quoted
from tidelog_bench.report.numbers import ENOUGH, Spread, few, number, setting, span, times, verdict


def page(report: Report) -> str:
    """The page; raises ConfigError without the library that lays it out."""
    more = ", or read the summary with --terminal"
    with optional_library("the page of a report", "jinja2, which lays it out", "plots", more):
        # Heavy: only a page pays for it.
        from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415
        from markupsafe import Markup  # noqa: PLC0415

    environment = Environment(
        loader=PackageLoader("tidelog_bench.report", ""), autoescape=True, undefined=StrictUndefined
    )
    environment.filters["times"] = times
    functions = (colours, limit, number, plots, published, quoted, setting, span, times, verdict)
    environment.globals |= {of.__name__: of for of in functions}
    pairs = min(loaded.session.pairs for loaded in report.sessions)
    return environment.get_template("page.html").render(
        sessions=report.sessions,
        answers=report.answers,
        unknown=report.unknown,
        targets=report.targets,
        style=Markup(_text("style.css")),
        few=few(pairs) if pairs < ENOUGH else None,
        quick=any(loaded.session.size == Size.QUICK for loaded in report.sessions),
    )


def _text(name: str) -> str:
    return files("tidelog_bench.report").joinpath(name).read_text(encoding="utf-8")


def published(experiment: str) -> list[dict[str, Any]]:
    """Figures that others have published about the same question, with setup and address: shown as
    they are and never computed with, for they are of another machine, state and store.
    """
    found = tomllib.loads(_text("published.toml"))
    return [
        {"off": None, "on": None, "change": None, **figure}
        | {"source": found["sources"][figure["source"]]}
        for figure in found["figures"]
        if figure["experiment"] == experiment
    ]


_COLOURS: Final = 8
"""How many colours style.css has for variants: its variables --v0 to --v7."""
_OURS: Final = ("on", "tidelog")
_Group = tuple[str, Mapping[str, Spread]]


def colours(variants: Iterable[str]) -> dict[str, int]:
    """The same for what is measured in all experiments, others in their order."""
    names = list(variants)
    ours = [name for name in names if name in _OURS][:1]
    ordered = [*ours, *(name for name in names if name not in ours)]
    return {name: at % _COLOURS for at, name in enumerate(ordered, 0 if ours else 1)}


@dataclass(frozen=True, slots=True)
class Panel:
    """A drawing: a plot of one cell, or of all."""

    title: str
    """Which cell; empty when there is only one."""
    unit: str
    log: bool
    groups: Sequence[_Group]
    """Under a label the spreads of variants."""

    @property
    def words(self) -> str:
        """The alternative text."""
        return "; ".join(f"{label or 'all'}: {self._values(bars)}" for label, bars in self.groups)

    def _values(self, bars: Mapping[str, Spread]) -> str:
        return ", ".join(
            f"{variant} {number(spread['median'])} {self.unit}".rstrip()
            for variant, spread in bars.items()
        )

    @property
    def length(self) -> Callable[[float], float]:
        """Gives the length of the bar of a value, in percent of the longest bar."""
        spreads = [spread for _, bars in self.groups for spread in bars.values()]
        least, most = (of(each[of.__name__] for each in spreads) for of in (min, max))
        if not self.log:
            return lambda value: 100 * value / (most or 1)
        # From a power of ten on, so that the least one has a length too.
        start = math.ceil(math.log10(least)) - 1
        return lambda value: 100 * (math.log10(value) - start) / (math.log10(most) - start)


def plots(answer: Answer) -> dict[str, list[Panel]]:
    """By title, the plots of an experiment that have something to show."""
    found = {plot.title: list(_panels(plot, answer)) for plot in answer.experiment.plots}
    return {title: panels for title, panels in found.items() if panels}


def _panels(plot: Bars, answer: Answer) -> Iterator[Panel]:
    """One figure: a group per cell; several: a panel per cell with a group per figure."""
    listed = {figure.name: figure for figure in answer.experiment.figures}
    cells, first = answer.cells, plot.figures[0]
    grouped = [("", [(cell.label, _of_figure(cell, first)) for cell in cells])]
    if len(plot.figures) > 1:
        grouped = [
            (cell.label, [(listed[name].title, _of_figure(cell, name)) for name in plot.figures])
            for cell in cells
        ]
    for title, of in grouped:
        if groups := [(label, bars) for label, bars in of if bars]:
            positive = all(spread["min"] > 0 for _, bars in groups for spread in bars.values())
            yield Panel(title, listed[first].unit, plot.log and positive, groups)


def _of_figure(cell: CellAnswer, figure: str) -> dict[str, Spread]:
    return {variant: of[figure] for variant, of in cell.medians.items() if figure in of}


def document(report: Report) -> dict[str, Any]:
    """Sessions, then experiments with their cells; see docs/reference/cli-json.md."""
    return {
        "sessions": [
            fields_of(loaded.session, "kind", "format") | {"load": loaded.loads}
            for loaded in report.sessions
        ],
        "experiments": [_experiment(answer) for answer in report.answers],
        "unknown": list(report.unknown),
        "targets": report.targets,
    }


def _experiment(answer: Answer) -> dict[str, Any]:
    experiment = answer.experiment
    return {
        "name": experiment.name,
        "title": experiment.title,
        "question": experiment.question,
        "group": experiment.group,
        "session": answer.session.session,
        "stale": answer.stale,
        "headlines": [fields_of(line) | {"figure": line.figure.name} for line in answer.headlines],
        "figures": [
            fields_of(figure)
            for figure in experiment.figures
            if any(figure in cell.figures for cell in answer.cells)
        ],
        "cells": _cells(answer),
        "missing": list(answer.missing),
        "skipped": [fields_of(skip, "kind", "measurement") for skip in answer.skipped],
        "failed": [fields_of(failure, "kind", "measurement") for failure in answer.failures],
        "published": [
            {key: figure[key] for key in ("what", "off", "on", "change")}
            | {key: figure["source"][key] for key in ("setup", "url")}
            for figure in published(experiment.name)
        ],
    }


def _cells(answer: Answer) -> list[dict[str, Any]]:
    known = {figure.name: figure for figure in answer.experiment.figures}
    return [
        {
            "settings": cell.settings,
            "medians": [
                {"variant": variant, "figure": name, **spread}
                for variant, figures in cell.medians.items()
                for name, spread in figures.items()
            ],
            "ratios": [
                {"ratio": ratio, "figure": name, **spread}
                | {"verdict": verdict(spread, known[name]) if name in known else None}
                for ratio, figures in cell.ratios.items()
                for name, spread in figures.items()
            ],
        }
        for cell in answer.cells
    ]


WIDTH: Final = 100
_FIGURES: Final = 6
"""The first ones of a cell; the page has all."""
_MARK: Final = "*"


def summary(report: Report) -> list[str]:
    """Lines: per experiment, cell and figure the medians with min and max, and the ratios."""
    answers = report.answers
    lines = [line for answer in answers for line in _answered(answer)]
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
    if not (results := report.targets):
        return
    for target in results:
        if target["spread"] is not None:
            shown = quoted(target["spread"], target["figure"], target["of"])
            text = f"{target['says']}: {target['text']}, {target['of']}: {shown}, {limit(target)}"
            yield from _wrapped("", text)
    absent = sum(target["spread"] is None for target in results)
    yield f"{absent} of {len(results)} targets: {ABSENT} in these sessions"
    yield ""


def _answered(answer: Answer) -> Iterator[str]:
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
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}    ",
        break_on_hyphens=False,
    )
