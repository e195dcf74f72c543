"""`tidelog bench sessions` and `report`: what the records of sessions say."""

from pathlib import Path
from typing import Any

import click

from tidelog.cli.exit_codes import EXIT_OK, EXIT_PROBLEM
from tidelog.cli.output import Output, Rows, fields_of, write_output
from tidelog.cli.store.options import on_this_machine
from tidelog_bench.report.answer import recorded
from tidelog_bench.report.answer import report as answered
from tidelog_bench.report.compared import compared
from tidelog_bench.report.numbers import ENOUGH, few, number, times
from tidelog_bench.report.shown import document, page
from tidelog_bench.session.records import (
    DIRECTORY,
    LATEST,
    FailureRecord,
    find,
    opened,
    paths,
    trials,
)
from tidelog_bench.session.sources import changed

results_option = click.option(
    "--results",
    type=click.Path(file_okay=False, path_type=Path),
    default=DIRECTORY,
    show_default=True,
    help="Directory of the sessions' records.",
)


@click.command("sessions")
@results_option
@on_this_machine
def sessions(output: Output, results: Path) -> int:
    """List the recorded sessions, oldest first.

    Stale are the experiments whose code has changed since, or was not recorded then.
    """
    rows = [_session(path) for path in paths(results)]
    table = Rows(
        rows,
        "session",
        ("asked for", lambda row: " ".join(row["names"] + row["only"])),
        "pairs",
        "trials",
        "failed",
        ("stale", lambda row: " ".join(row["stale"])),
        ("revision", lambda row: (row["revision"] or "-")[:9]),
        ("processor", lambda row: row["machine"].get("cpu")),
    )
    output.show(rows, table)
    return EXIT_OK


def _session(path: Path) -> dict[str, Any]:
    first, records = opened(path)
    names = ("session", "started", "size", "pairs", "names", "only", "revision", "machine")
    return {name: getattr(first, name) for name in names} | {
        "stale": changed(first),
        "trials": len(trials(records)),
        "failed": sum(isinstance(record, FailureRecord) for record in records),
    }


@click.command("report")
@click.argument("sessions", nargs=-1, metavar="[SESSION]...")
@click.option("--all", "best", is_flag=True, help="Of each cell the newest record with 5 pairs.")
@click.option(
    "--output",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the page into FILE.",
)
@results_option
@on_this_machine
def report(
    output: Output, sessions: tuple[str, ...], best: bool, target: Path | None, results: Path
) -> int:
    """Print a page of Markdown of the newest session, or of the SESSIONs named.

    A session is a file, a name, the beginning of one, or latest, latest~1 and so on. Of several,
    each experiment takes its numbers from the newest that measured it. The report of an interrupted
    session says what is missing.

    With --all it is the page of benchmarks/results: the cells of a standard session, each from the
    newest session with five pairs.
    """
    if best and sessions:
        raise click.UsageError("--all takes all sessions: name none")
    chosen = [find(reference, results) for reference in sessions or (() if best else (LATEST,))]
    found = recorded(paths(results)) if best else answered(chosen)
    if target is not None:
        write_output(target, page(found).encode())
    shown = page(found).rstrip() if target is None else f"{target}: written"
    output.show(document(found), shown)
    return EXIT_OK


@click.command("compare")
@click.argument("first")
@click.argument("second")
@results_option
@on_this_machine
def compare(output: Output, first: str, second: str, results: Path) -> int:
    """Say how the figures of session SECOND differ from those of FIRST.

    A session is named as in `tidelog bench report`. Cells are compared that have the same settings,
    or that are the only one of their experiment in both. Exits with 1 when there are none.
    """
    found = compared(find(first, results), find(second, results))
    pairs = min(each.pairs for each in found.sessions)
    parts: list[str | Rows] = []
    for cell in found.cells:
        parts += ["", f"{cell.experiment} {cell.variant} {cell.label}".rstrip()]
        parts += [f"  {each.name}: {each.first} -> {each.second}" for each in cell.settings]
        parts.append(
            Rows(
                cell.figures,
                "figure",
                ("first", lambda row: number(row.first)),
                ("second", lambda row: number(row.second)),
                ("second / first", lambda row: "" if row.ratio is None else times(row.ratio)),
                "unit",
            )
        )
    if not found.cells:
        parts.append("The sessions have measured nothing in common.")
    elif pairs < ENOUGH:
        parts.append(f"{few(pairs)}.")
    output.show({"cells": [fields_of(cell) for cell in found.cells]}, *parts)
    return EXIT_OK if found.cells else EXIT_PROBLEM
