"""`tidelog checkpoints drop`: remove a savepoint."""

import logging

import click

from tidelog.catalog.drop import plan_drop
from tidelog.catalog.inventory import read_inventory
from tidelog.catalog.locate import parse_place
from tidelog.cli.options import option
from tidelog.cli.store.options import EXIT_OK, StoreCommand, on_store
from tidelog.cli.values import size
from tidelog.errors import TidelogError
from tidelog.events import Event
from tidelog.runtime.control.client import ask
from tidelog.runtime.control.protocol import Request
from tidelog.storage import object_names

logger = logging.getLogger(__name__)


@click.command("drop")
@on_store
@click.argument("savepoint")
@option("--dry-run/--delete", default=True, help="Only say what would be deleted.")
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
        await store.delete(object_names.checkpoint(entry.slot))
        try:
            await ask(Request(store=store.url, operation="forget", slot=entry.slot))
        except TidelogError as error:  # no job runs here: its next start finds out by itself
            Event.JOB_NOT_ASKED.log(logger, slot=entry.slot, error=error)
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
