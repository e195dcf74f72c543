"""What a report shows, as one page of HTML and as JSON.

Invariant: the page loads nothing and runs nothing, whatever a record contains.
"""

import tomllib
from importlib.resources import files
from typing import Any

from tidelog.cli.output import fields_of
from tidelog.errors import optional_library
from tidelog_bench.experiment import Size
from tidelog_bench.report.answer import Answer, Report
from tidelog_bench.report.declared import limit, quoted
from tidelog_bench.report.numbers import ENOUGH, few, number, setting, span, times, verdict
from tidelog_bench.report.plots import colours, plots


def page(report: Report) -> str:
    """The page; raises ConfigError without the library that lays it out."""
    with optional_library(
        "the page of a report",
        "jinja2, which lays it out",
        "plots",
        ", or read the summary with --terminal",
    ):
        # Heavy: only a page pays for it.
        from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415
        from markupsafe import Markup  # noqa: PLC0415

    environment = Environment(
        loader=PackageLoader("tidelog_bench.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
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
