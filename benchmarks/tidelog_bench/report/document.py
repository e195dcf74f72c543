"""What a report shows, as JSON."""

from typing import Any

import msgspec

from tidelog_bench.report.chapter import Chapter, LoadedSession, Report
from tidelog_bench.report.published import published
from tidelog_bench.report.verdict import headline, verdict


def document(report: Report) -> dict[str, Any]:
    """Sessions, then experiments with their cells; see docs/reference/cli-json.md."""
    return {
        "sessions": [_session(loaded) for loaded in report.sessions],
        "experiments": [_experiment(chapter) for chapter in report.chapters],
        "unknown": list(report.unknown),
    }


def _session(loaded: LoadedSession) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(loaded.session)
    del fields["kind"], fields["format"]
    return fields | {"load": list(loaded.loads) if loaded.loads is not None else None}


def _experiment(chapter: Chapter) -> dict[str, Any]:
    answer = chapter.answer
    experiment = answer.experiment
    line = headline(answer)
    return {
        "name": experiment.name,
        "title": experiment.title,
        "question": experiment.question,
        "group": experiment.group,
        "session": chapter.session.session,
        "headline": None
        if line is None
        else {
            "figure": line.figure.name,
            "ratio": line.ratio,
            "median": line.median,
            "min": line.low,
            "max": line.high,
            "verdicts": [str(each) for each in line.verdicts],
        },
        "figures": [
            {"name": f.name, "title": f.title, "unit": f.unit, "better": f.better}
            for f in answer.present(experiment.figures)
        ],
        "cells": _cells(chapter),
        "missing": list(chapter.missing),
        "skipped": [{"variant": s.variant, "reason": s.reason} for s in answer.skipped],
        "failed": [
            {"settings": f.settings, "variant": f.variant, "pair": f.pair, "error": f.error}
            for f in answer.failures
        ],
        "published": [
            {
                "what": f.what,
                "off": f.off,
                "on": f.on,
                "change": f.change,
                "setup": f.source.setup,
                "url": f.source.url,
            }
            for f in published(experiment.name)
        ],
    }


def _cells(chapter: Chapter) -> list[dict[str, Any]]:
    answer = chapter.answer
    known = {figure.name: figure for figure in answer.experiment.figures}
    return [
        {
            "settings": dict(cell.settings),
            "medians": [
                {"variant": variant, "figure": name, **spread}
                for variant, figures in cell.figures.items()
                for name, spread in figures.items()
            ],
            "ratios": [
                {
                    "ratio": ratio,
                    "figure": name,
                    **spread,
                    "verdict": str(verdict(spread, known[name])) if name in known else None,
                }
                for ratio, figures in cell.ratios.items()
                for name, spread in figures.items()
            ],
        }
        for cell in answer.cells
    ]
