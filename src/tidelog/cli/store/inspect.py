"""`tidelog inspect`: every invariant of a store, checked."""

from typing import Any

import click

from tidelog.catalog.audit import AuditReport, SlotVerdict, audit
from tidelog.checkpoint.finding import Finding
from tidelog.cli.output import Output, fields_of
from tidelog.cli.store.inspect_partitions import inspect_partitions, partitions_at
from tidelog.cli.store.options import EXIT_OK, EXIT_PROBLEM, StoreCommand, on_store
from tidelog.cli.values import size


@click.command("inspect")
@on_store
@click.option("--deep", is_flag=True, help="Read all segments and table files, check every CRC.")
async def command(invocation: StoreCommand, deep: bool) -> int:
    """Check every invariant of the store at URL; nothing is written.

    Names the checkpoints that can be restored, and for each problem those that cannot because
    of it. Exits with 1 when there is a problem. For an application that several processes share the
    stores of all partitions are checked, and one line says what was found of each.
    """
    output = invocation.output
    if (found := await partitions_at(invocation)) is not None:
        return await inspect_partitions(invocation, *found, deep=deep)
    with output.progress("inspecting") as progress:
        report = await audit(invocation.store, deep=deep, progress=progress)
    if output.as_json:
        output.document(_fields(invocation.store.url, deep, report))
    else:
        _print(output, deep, report)
    return EXIT_PROBLEM if report.problems else EXIT_OK


def _fields(url: str, deep: bool, report: AuditReport) -> dict[str, Any]:
    return {
        "url": url,
        "deep": deep,
        **fields_of(report),
        "newest_restorable": report.newest_restorable,
        "problems": [
            {
                "invariant": problem.check,
                "where": problem.where,
                "expected": problem.expected,
                "found": problem.found,
                "slots": problem.unusable,
                "action": _action(report, problem),
            }
            for problem in report.problems
        ],
    }


def _print(output: Output, deep: bool, report: AuditReport) -> None:
    output.table(
        ["slot", "kind", "id", "restorable"],
        [[v.slot, v.kind, v.checkpoint_id, _restorable(v)] for v in report.slots],
    )
    for problem in report.problems:
        output.line()
        output.line(f"{problem.where} ({problem.check})")
        output.line(f"  expected {problem.expected}; found {problem.found}")
        if problem.unusable:
            output.line(f"  makes unusable: slot {', '.join(map(str, problem.unusable))}")
        output.line(f"  next: {_action(report, problem)}")
    output.line()
    depth = "every byte read" if deep else "bytes not read, --deep reads them"
    output.line(
        f"{len(report.problems)} problems; {report.objects} data objects of {size(report.bytes)}, "
        f"{depth}"
    )


def _restorable(verdict: SlotVerdict) -> str | None:
    return {True: "yes", False: "NO", None: None}[verdict.restorable]


def _action(report: AuditReport, problem: Finding) -> str:
    newest = report.newest_restorable
    if problem.newer_format:
        return "use the tidelog release that wrote it, or a newer one"
    if not problem.unusable:
        return "find out what else writes or deletes objects under this URL"
    if newest is None:
        return "bring the object back from a backup; no other checkpoint can be restored"
    return f"bring the object back from a backup, or restore slot {newest}"
