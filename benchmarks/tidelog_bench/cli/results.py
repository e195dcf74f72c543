"""`tidelog bench sessions`, `compare` and `report`: what the records of sessions say."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tidelog.cli.output import Output, Rows, fields_of, write_output
from tidelog.cli.store.options import EXIT_OK, EXIT_PROBLEM, on_this_machine
from tidelog_bench.experiments import experiments
from tidelog_bench.report.answer import report as answered
from tidelog_bench.report.compare import Change, Comparison, machine_differs
from tidelog_bench.report.compare import compare as compared
from tidelog_bench.report.numbers import number, settings, span, times
from tidelog_bench.report.page import document, page
from tidelog_bench.report.statistics import spread
from tidelog_bench.report.terminal import summary
from tidelog_bench.session.records import (
    DIRECTORY,
    LATEST,
    FailureRecord,
    SessionRecord,
    find,
    opened,
    paths,
    trials,
)

_DIFFER = "The machines differ: ratios are compared and figures are not."
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
    """List the recorded sessions, oldest first."""
    rows = [_session(path) for path in paths(results)]
    table = Rows(
        rows,
        "session",
        ("asked for", lambda row: " ".join(row["names"] + row["only"])),
        "pairs",
        "trials",
        "failed",
        ("revision", lambda row: (row["revision"] or "-")[:9]),
        ("processor", lambda row: row["machine"].get("cpu")),
    )
    output.show(rows, table)
    return EXIT_OK


def _session(path: Path) -> dict[str, Any]:
    first, records = opened(path)
    names = ("session", "started", "size", "pairs", "names", "only", "revision", "machine")
    return {name: getattr(first, name) for name in names} | {
        "trials": len(trials(records)),
        "failed": sum(isinstance(record, FailureRecord) for record in records),
    }


@click.command("compare")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option("--all", "everything", is_flag=True, help="Also what did not move.")
@click.option("--fail-on-worse", is_flag=True, help="Exit with 1 when a figure got worse.")
@results_option
@on_this_machine
def compare(
    output: Output, before: str, after: str, everything: bool, fail_on_worse: bool, results: Path
) -> int:
    """Show what moved beyond noise from session A to session B.

    A session is a file, a name, the beginning of one, or latest, latest~1 and so on. Figures of
    equal cells are compared, and the ratios of their variants; on different machines the ratios
    alone. A figure moved when all its trials in one session lie on one side of all those in the
    other, which takes four trials on each side.
    """
    (old, old_records), (new, new_records) = (
        opened(find(reference, results)) for reference in (before, after)
    )
    one_machine = not machine_differs(old.machine, new.machine)
    found = compared(old_records, new_records, experiments().values(), one_machine=one_machine)
    document = {
        "before": old.session,
        "after": new.session,
        "one_machine": one_machine,
        "by_chance": round(found.by_chance, 2),
        "changes": [_change(change) for change in found.changes],
    }
    shown = found.changes if everything else found.moved
    parts = [f"A: {_about(old)}", f"B: {_about(new)}", *([] if one_machine else [_DIFFER])]
    output.show(document, *parts, *([_changes(shown)] if shown else []), _conclusion(found))
    worse = any(change.verdict == "worse" for change in found.changes)
    return EXIT_PROBLEM if worse and fail_on_worse else EXIT_OK


def _about(session: SessionRecord) -> str:
    revision, cpu = (session.revision or "-")[:9], session.machine.get("cpu")
    return f"{session.session}, {session.pairs} pairs, revision {revision}, {cpu}"


def _changes(shown: Sequence[Change]) -> Rows:
    return Rows(
        shown,
        "experiment",
        ("cell", lambda change: settings(change.settings)),
        "of",
        "figure",
        ("A", lambda change: _range(change.before)),
        ("B", lambda change: _range(change.after)),
        ("B / A", lambda change: None if change.factor is None else times(change.factor)),
        ("", lambda change: change.verdict),
    )


def _conclusion(found: Comparison) -> str:
    few = len(found.changes) - len(found.compared)
    return (
        f"{len(found.moved)} of {len(found.compared)} figures moved beyond noise; if nothing had "
        f"changed, about {found.by_chance:.1f} would seem to."
        + (f" {few} have too few trials to tell." if few else "")
    )


def _range(values: Sequence[float]) -> str:
    found = spread(values)
    return f"{number(found['median'])} {span(found)}".rstrip()


def _change(change: Change) -> dict[str, Any]:
    return fields_of(change) | {
        "before": spread(change.before),
        "after": spread(change.after),
        "factor": change.factor,
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
        parts += [f"session {_about(loaded.session)}" for loaded in found.sessions]
        parts += ["", *summary(found.answers)]
    if target is not None:
        parts.append(f"{target}: {target.stat().st_size / 1e6:.2f} MB")
    output.show(document(found), *parts)
    return EXIT_OK
