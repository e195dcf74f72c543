"""`tidelog spark rebuild-index`: the lost parts of a checkpoint's index, written again."""

from typing import Any

import click

from tidelog.cli.output import Cell, Output, error_fields
from tidelog.cli.spark.options import STOP_THE_QUERY, on_checkpoint
from tidelog.cli.store.options import EXIT_OK, EXIT_PROBLEM, StoreCommand
from tidelog.spark.checkpoint.checkpoint import COMMITS, INDEX, Checkpoint, require_checkpoint
from tidelog.spark.checkpoint.locate import Located, locate
from tidelog.spark.checkpoint.reading import read_checkpoint
from tidelog.spark.checkpoint.rebuild import RebuildPlan, plan_rebuild, write_index_again
from tidelog.spark.format.index import IndexDocument
from tidelog.spark.format.names import roll_up_name


@click.command("rebuild-index")
@on_checkpoint
@click.option("--dry-run", is_flag=True, help="Only say what would be written.")
async def command(invocation: StoreCommand, dry_run: bool) -> int:
    """Write missing and damaged parts of the index of the checkpoint at URL again.

    The query must be stopped. Reads the footers of all segments; what can be read of the index
    stays as it is. Exits with 1 when something that a retained batch needs is nowhere.
    """
    output, store = invocation.output, invocation.store
    click.echo(STOP_THE_QUERY, err=True)
    with output.progress("reading the checkpoint") as progress:
        checkpoint = await read_checkpoint(store, progress)
    require_checkpoint(checkpoint)
    with output.progress("reading footers") as progress:
        located = await locate(store, checkpoint, all_footers=True, progress=progress)
    plan = plan_rebuild(checkpoint, located.assessment, located.known)
    if not dry_run:
        await write_index_again(store, checkpoint, plan)
    problems = _problems(checkpoint, located, plan)
    if output.as_json:
        output.document(_fields(invocation.url, dry_run, plan, located, problems))
    else:
        _print(output, dry_run, plan, located, problems)
    return EXIT_PROBLEM if problems or located.assessment.lost else EXIT_OK


def _problems(checkpoint: Checkpoint, located: Located, plan: RebuildPlan) -> list[dict[str, Any]]:
    """Damage that was not mended."""
    mended = {f"{COMMITS}{batch}" for batch in plan.lines} | set(plan.useless)
    mended |= {INDEX + roll_up_name(first) for first in plan.roll_ups}
    footers = located.footers.damaged if located.footers else {}
    left = {**checkpoint.damaged, **footers}
    return [
        {"object": name, "error": error_fields(error)}
        for name, error in sorted(left.items())
        if name not in mended
    ]


def _fields(
    url: str,
    dry_run: bool,
    plan: RebuildPlan,
    located: Located,
    problems: list[dict[str, Any]],
) -> dict[str, Any]:
    return {
        "url": url,
        "dry_run": dry_run,
        "lines": [_written(document) for document in plan.lines.values()],
        "roll_ups": [_written(document) for document in plan.roll_ups.values()],
        "deleted": plan.useless,
        "lost": located.assessment.lost,
        "damaged": problems,
    }


def _written(document: IndexDocument) -> dict[str, int]:
    return {
        "first": document.first,
        "last": document.last,
        "changelogs": len(document.entries),
        "segments": len(document.segments),
    }


def _print(
    output: Output,
    dry_run: bool,
    plan: RebuildPlan,
    located: Located,
    problems: list[dict[str, Any]],
) -> None:
    rows: list[list[Cell]] = [
        ["commit line", d.first, d.last, len(d.entries)] for d in plan.lines.values()
    ]
    rows += [["roll-up", d.first, d.last, len(d.entries)] for d in plan.roll_ups.values()]
    if rows:
        output.table(["object", "first batch", "last batch", "changelogs"], rows)
        output.line()
    verdict = "would be written" if dry_run else "written"
    output.line(f"{len(rows)} parts of the index {verdict}")
    if plan.useless:
        gone = "would be deleted" if dry_run else "deleted"
        output.line(f"{len(plan.useless)} damaged roll-ups that nothing needs {gone}")
    for lost in located.assessment.lost:
        output.line(f"lost: {lost.what}, of batch {lost.batch}")
    for problem in problems:
        error = problem["error"]
        output.line(f"damaged: {error['what']}: expected {error['expected']}; {error['found']}")
        output.line(f"  next: {error['action']}")
