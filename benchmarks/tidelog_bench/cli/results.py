"""`tidelog bench sessions` and `report`: what the records of sessions say."""

from pathlib import Path
from typing import Any

import click

from tidelog.cli.exit_codes import EXIT_OK, EXIT_PROBLEM
from tidelog.cli.output import Output, Rows, fields_of, write_output
from tidelog.cli.store.options import on_this_machine
from tidelog_bench.report.answer import report as answered
from tidelog_bench.report.compared import compared
from tidelog_bench.report.declared import pages, with_figures
from tidelog_bench.report.numbers import ENOUGH, few, number, times
from tidelog_bench.report.shown import document, page, summary
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
@click.option(
    "--output",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The page.  [default: report.html, with --terminal or --json none]",
)
@click.option("--terminal", is_flag=True, help="Print the summary.")
@results_option
@on_this_machine
def report(
    output: Output, sessions: tuple[str, ...], target: Path | None, terminal: bool, results: Path
) -> int:
    """Write one HTML page of the newest session, or of the SESSIONs named.

    A session is a file, a name, the beginning of one, or latest, latest~1 and so on. Of several,
    each experiment takes its numbers from the newest that measured it. The page needs nothing
    else: it can be mailed, printed, and read on a phone. A session that was interrupted has a
    report too, which says what is missing.
    """
    found = answered([find(reference, results) for reference in sessions or (LATEST,)])
    if target is None and not terminal and not output.as_json:
        target = Path("report.html")
    if target is not None:
        write_output(target, page(found).encode())
    parts: list[str] = []
    if terminal:
        for of in (loaded.session for loaded in found.sessions):
            revision, cpu = (of.revision or "-")[:9], of.machine.get("cpu")
            parts.append(f"session {of.session}, {of.pairs} pairs, revision {revision}, {cpu}")
        parts += ["", *summary(found)]
    if target is not None:
        parts.append(f"{target}: {target.stat().st_size / 1e6:.2f} MB")
    output.show(document(found), *parts)
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


@click.command("quote")
@click.argument(
    "files", nargs=-1, metavar="[FILE]...", type=click.Path(path_type=Path, exists=True)
)
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 when a file differs.")
@results_option
@on_this_machine
def quote(output: Output, files: tuple[Path, ...], check: bool, results: Path) -> int:
    """Write the figures of recorded sessions into FILES, or README and docs, between markers."""
    recorded = [opened(path) for path in paths(results)]
    differ = []
    for path in files or pages():
        page = path.read_text(encoding="utf-8")
        if (new := with_figures(page, recorded)) != page:
            differ.append(str(path))
            if not check:
                write_output(path, new.encode())
    said = "differs from the recorded sessions" if check else "written"
    output.show({"differ": differ}, *(f"{path}: {said}" for path in differ))
    return EXIT_PROBLEM if check and differ else EXIT_OK
