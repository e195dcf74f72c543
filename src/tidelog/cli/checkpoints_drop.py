"""`tidelog checkpoints drop`: remove a savepoint."""

from contextlib import suppress

import click

from tidelog.checkpoint.dropping import plan_drop
from tidelog.checkpoint.inventory import read_inventory
from tidelog.checkpoint.origin import parse_place
from tidelog.cli.options import EXIT_OK, StoreCommand, on_store
from tidelog.cli.output import size
from tidelog.errors import TidelogError
from tidelog.runtime.control.client import ask
from tidelog.runtime.control.protocol import Request
from tidelog.storage import paths


@click.command("drop")
@on_store
@click.argument("savepoint")
@click.option(
    "--dry-run/--delete", default=True, show_default=True, help="Only say what would be deleted."
)
async def command(invocation: StoreCommand, savepoint: str, dry_run: bool) -> int:
    """Remove a savepoint, by its name or its slot's number; without --delete only say what goes.

    Its objects that nothing else needs are deleted by the running job at once, or by the job's next
    start or `tidelog sweep`. The newest checkpoint of a store cannot be removed. A savepoint that
    another store was started from can, when the job there has completed a checkpoint.
    """
    output, store = invocation.output, invocation.store
    place = parse_place(savepoint)
    with output.progress("reading references") as progress:
        plan = plan_drop(await read_inventory(store, progress), place)
    entry = plan.savepoint
    if not dry_run:
        await store.delete(paths.checkpoint(entry.slot))
        with suppress(TidelogError):  # no job runs here: its next start finds out by itself
            await ask(Request(store=store.url, operation="forget", slot=entry.slot))
    if output.as_json:
        output.document(
            {
                "url": store.url,
                "deleted": not dry_run,
                "name": entry.name,
                "slot": entry.slot,
                "objects": plan.objects,
                "freed_bytes": plan.freed_bytes,
            }
        )
        return EXIT_OK
    output.line(
        f"savepoint {entry.name} in slot {entry.slot} "
        f"{'would be ' if dry_run else ''}removed; {len(plan.objects)} objects of "
        f"{size(plan.freed_bytes)} are needed by nothing else"
    )
    if dry_run:
        output.line("nothing was deleted; add --delete to do it")
    return EXIT_OK
