"""`tidelog savepoint`: take a savepoint of a running job."""

import click

from tidelog.checkpoint.manifest import SavepointFormat
from tidelog.cli.control import carry_out, savepoint_options
from tidelog.cli.options import StoreCommand, on_store
from tidelog.runtime.control.protocol import Request


@click.command("savepoint")
@on_store
@savepoint_options
@click.option("--name", help="Its name; default: savepoint-DATE-TIME.")
async def command(
    invocation: StoreCommand,
    name: str | None,
    savepoint_format: SavepointFormat,
    job: str | None,
    timeout: float | None,
) -> int:
    """Take a savepoint of the job that runs on the store at URL, on this machine.

    The job goes on, whether it succeeds or fails. A savepoint stays until
    `tidelog checkpoints drop` removes it.
    """
    request = Request(
        store=invocation.store.url,
        operation="savepoint",
        job=job,
        name=name,
        format=savepoint_format,
        timeout_s=timeout,
    )
    return await carry_out(invocation, request, "savepoint")
