"""`tidelog sweep`: delete what crashes left behind."""

from typing import Any

import click

from tidelog.catalog.sweep import SweepPlan, delete_garbage, plan_sweep
from tidelog.cli.options import option
from tidelog.cli.output import Output
from tidelog.cli.store.options import EXIT_OK, StoreCommand, on_store
from tidelog.cli.values import size
from tidelog.storage.port import ObjectInfo


@click.command("sweep")
@on_store
@option("--dry-run/--delete", default=True, help="Only say what would be deleted.")
async def command(invocation: StoreCommand, dry_run: bool) -> int:
    """Delete the garbage in the store at URL; without --delete only list it.

    Garbage is what generations before the newest one wrote and no retained checkpoint names.
    Refuses when a retained checkpoint cannot be read. Safe while a job runs.
    """
    output = invocation.output
    with output.progress("reading references") as progress:
        plan = await plan_sweep(invocation.store, progress)
    if not dry_run:
        with output.progress("deleting") as progress:
            await delete_garbage(invocation.store, plan, progress)
    if output.as_json:
        output.document(_fields(invocation.store.url, plan, deleted=not dry_run))
    else:
        _print(output, plan, deleted=not dry_run)
    return EXIT_OK


def _fields(url: str, plan: SweepPlan, *, deleted: bool) -> dict[str, Any]:
    return {
        "url": url,
        "generation": plan.generation,
        "deleted": deleted,
        "garbage": plan.garbage,
        "garbage_bytes": _bytes(plan.garbage),
        "undecided": plan.undecided,
        "undecided_bytes": _bytes(plan.undecided),
    }


def _print(output: Output, plan: SweepPlan, *, deleted: bool) -> None:
    verdict = "deleted" if deleted else "garbage"
    rows = [[verdict, size(info.size), info.name] for info in plan.garbage]
    rows += [["undecided", size(info.size), info.name] for info in plan.undecided]
    if rows:
        output.table(["verdict", "size", "object"], rows)
    output.line(f"{len(plan.garbage)} objects of {size(_bytes(plan.garbage))} {verdict}")
    if plan.undecided:
        output.line(
            f"{len(plan.undecided)} objects of generation {plan.generation} are undecided: its "
            "job may still name them; the first sweep after its next start decides"
        )
    if plan.garbage and not deleted:
        output.line("nothing was deleted; add --delete to do it")


def _bytes(infos: tuple[ObjectInfo, ...]) -> int:
    return sum(info.size for info in infos)
