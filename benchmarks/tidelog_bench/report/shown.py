"""What a report shows: a page of Markdown, and JSON."""

from collections.abc import Iterator
from typing import Any, Final

from tidelog.cli.output import fields_of
from tidelog_bench.experiment import Figure
from tidelog_bench.report.answer import Answer, CellAnswer, Report
from tidelog_bench.report.numbers import ENOUGH, few, quoted, setting, unit_of_name, verdict
from tidelog_bench.session.records import SessionRecord

_ABOUT: Final = (
    "Median (min-max) of the pairs of a session. A ratio is formed within each pair; it is within "
    f"noise unless all of at least {ENOUGH} pairs are on one side of 1."
)


def page(report: Report) -> str:
    """Markdown: the sessions, then for each experiment a table of each cell."""
    lines = ["# Benchmarks", "", _ABOUT, ""]
    lines += ["| session | pairs | revision | machine |", "|---|---:|---|---|"]
    lines += [_session(loaded.session) for loaded in report.sessions]
    pairs = min((answer.session.pairs for answer in report.answers), default=ENOUGH)
    if pairs < ENOUGH:
        lines += ["", f"{few(pairs)}."]
    for answer in report.answers:
        lines += ["", *_answered(answer)]
    return "\n".join(_escaped(line) for line in lines) + "\n"


def _escaped(line: str) -> str:
    return line.replace("<", "&lt;")


def _session(session: SessionRecord) -> str:
    machine = session.machine
    revision = session.revision[:9] if session.revision else "-"
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB"
    return f"| {session.session} | {session.pairs} | {revision} | {where} |"


def _answered(answer: Answer) -> Iterator[str]:
    experiment = answer.experiment
    yield f"## {experiment.name}: {experiment.title}"
    yield ""
    yield f"{experiment.question} `{_command(answer)}`, {answer.session.session}."
    shared = ", ".join(setting(name, value) for name, value in answer.common.items())
    if shared:
        yield from ("", f"All runs: {shared}.")
    for cell in answer.cells:
        yield from ("", *_table(cell))
    notes = [f"{skip.variant}: skipped, {skip.reason}" for skip in answer.skipped]
    notes += [f"incomplete: {sentence}" for sentence in answer.missing]
    notes += [
        f"{failure.variant}, pair {failure.pair + 1}: FAILED, {_last(failure.error)}"
        for failure in answer.failures
    ]
    if notes:
        yield from ("", *(f"* {note}" for note in notes))


def _command(answer: Answer) -> str:
    """What runs it again; of a job of one's own its settings say the rest."""
    job = answer.session.job
    asked = f"--job {job['job']}" if job else answer.experiment.name
    return f"tidelog bench run {asked}"


def _last(error: str) -> str:
    return (error.strip().splitlines()[-1:] or ["no reason given"])[0]


def _table(cell: CellAnswer) -> Iterator[str]:
    columns = [*cell.medians, *cell.ratios]
    yield f"| {' | '.join([cell.label or 'figure', *columns])} |"
    yield f"|---|{'---:|' * len(columns)}"
    for figure in cell.figures:
        values = [
            quoted(of[figure.name], figure, ratio=name in cell.ratios) if figure.name in of else ""
            for name, of in (*cell.medians.items(), *cell.ratios.items())
        ]
        yield f"| {' | '.join([_title(figure), *values])} |"


def _title(figure: Figure) -> str:
    """With its unit, where the values do not show it."""
    shown = unit_of_name(figure.name)
    return (
        figure.title
        if shown and shown != "/s"
        else ", ".join(filter(None, (figure.title, figure.unit)))
    )


def document(report: Report) -> dict[str, Any]:
    """Sessions, then experiments with their cells; see docs/reference/cli-json.md."""
    return {
        "sessions": [fields_of(loaded.session, "kind", "format") for loaded in report.sessions],
        "experiments": [_experiment(answer) for answer in report.answers],
        "unknown": list(report.unknown),
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
        "figures": [
            fields_of(figure)
            for figure in experiment.figures
            if any(figure in cell.figures for cell in answer.cells)
        ],
        "cells": _cells(answer),
        "missing": list(answer.missing),
        "skipped": [fields_of(skip, "kind", "measurement") for skip in answer.skipped],
        "failed": [fields_of(failure, "kind", "measurement") for failure in answer.failures],
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
