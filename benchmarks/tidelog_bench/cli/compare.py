"""`tidelog bench compare`: what moved beyond noise between two sessions."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tidelog.cli.output import Output
from tidelog.cli.store.options import EXIT_OK, EXIT_PROBLEM, on_this_machine
from tidelog_bench.cli.options import results_option
from tidelog_bench.compare import Change, Comparison, compare, machine_differs
from tidelog_bench.experiments import experiments
from tidelog_bench.report.numbers import number, settings, span, times
from tidelog_bench.session.records import SessionRecord, find, opened
from tidelog_bench.statistics import spread


@click.command("compare")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option("--all", "everything", is_flag=True, help="Also what did not move.")
@click.option("--fail-on-worse", is_flag=True, help="Exit with 1 when a figure got worse.")
@results_option
@on_this_machine
def command(
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
    found = compare(old_records, new_records, experiments().values(), one_machine=one_machine)
    if output.as_json:
        output.document(_document(found, old, new, one_machine=one_machine))
    else:
        _print(output, found, old, new, everything=everything, one_machine=one_machine)
    worse = any(change.verdict == "worse" for change in found.changes)
    return EXIT_PROBLEM if worse and fail_on_worse else EXIT_OK


def _print(
    output: Output,
    found: Comparison,
    old: SessionRecord,
    new: SessionRecord,
    *,
    everything: bool,
    one_machine: bool,
) -> None:
    for letter, session in (("A", old), ("B", new)):
        output.line(
            f"{letter}: {session.session}, {session.pairs} pairs, revision "
            f"{(session.revision or '-')[:9]}, {session.machine.get('cpu')}"
        )
    if not one_machine:
        output.line("The machines differ: ratios are compared and figures are not.")
    shown = list(found.changes) if everything else found.moved
    if shown:
        output.line()
        output.table(
            ["experiment", "cell", "of", "figure", "A", "B", "B / A", ""],
            [_row(change) for change in shown],
        )
    output.line()
    output.line(_conclusion(found))


def _conclusion(found: Comparison) -> str:
    compared = [change for change in found.changes if change.verdict != "too few"]
    few = len(found.changes) - len(compared)
    text = (
        f"{len(found.moved)} of {len(compared)} figures moved beyond noise; if nothing had "
        f"changed, about {found.by_chance:.1f} would seem to."
    )
    return text + (f" {few} have too few trials to tell." if few else "")


def _row(change: Change) -> list[str]:
    return [
        change.experiment,
        settings(change.settings),
        change.of,
        change.figure,
        _range(change.before),
        _range(change.after),
        "-" if math.isnan(change.factor) else times(change.factor),
        change.verdict,
    ]


def _range(values: Sequence[float]) -> str:
    found = spread(values)
    return f"{number(found['median'])} {span(found)}".rstrip()


def _document(
    found: Comparison, old: SessionRecord, new: SessionRecord, *, one_machine: bool
) -> dict[str, Any]:
    return {
        "before": old.session,
        "after": new.session,
        "one_machine": one_machine,
        "by_chance": round(found.by_chance, 2),
        "changes": [
            {
                "experiment": change.experiment,
                "settings": dict(change.settings),
                "of": change.of,
                "figure": change.figure,
                "before": spread(change.before),
                "after": spread(change.after),
                "factor": None if math.isnan(change.factor) else change.factor,
                "verdict": change.verdict,
            }
            for change in found.changes
        ],
    }
