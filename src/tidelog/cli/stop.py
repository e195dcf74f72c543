"""`tidelog stop`: stop a running job with a savepoint."""

import click

from tidelog.checkpoint.manifest import SavepointFormat
from tidelog.cli.control import carry_out, savepoint_options
from tidelog.cli.options import StoreCommand, on_store
from tidelog.runtime.control.protocol import Request


@click.command("stop")
@on_store
@savepoint_options
@click.option("--savepoint", "name", metavar="NAME", help="Its name; default: savepoint-DATE-TIME.")
@click.option(
    "--drain",
    is_flag=True,
    help="First fire all windows and timers, as at the end of the data: the job is complete then "
    "and does not go on from here.",
)
async def command(
    invocation: StoreCommand,
    name: str | None,
    savepoint_format: SavepointFormat,
    job: str | None,
    timeout: float | None,
    drain: bool,
) -> int:
    """Stop the job that runs on the store at URL, on this machine, with a savepoint.

    Nothing is emitted behind the savepoint, and sinks have committed what lies before it. The same
    `tidelog run` goes on exactly there. When the savepoint fails the job goes on reading.
    """
    request = Request(
        store=invocation.store.url,
        operation="stop",
        job=job,
        name=name,
        format=savepoint_format,
        drain=drain,
        timeout_s=timeout,
    )
    return await carry_out(invocation, request, "stopping")
