"""`tidelog savepoint` and `tidelog stop`: ask a running job for a savepoint.

Invariant: the answer of the job is printed as it came; an error ends the command with 1.
"""

from typing import Any

import click

from tidelog.catalog.application import refuse_application
from tidelog.checkpoint.manifest import SavepointFormat
from tidelog.cli.options import add_options, option
from tidelog.cli.store.options import EXIT_OK, StoreCommand, on_store
from tidelog.cli.values import duration
from tidelog.errors import ControlError
from tidelog.runtime.control.client import ask
from tidelog.runtime.control.protocol import Done, Progress, Request

_savepoint_options = add_options(
    click.option(
        "--timeout",
        type=duration,
        help="Give up after this time; default: the job's --checkpoint-timeout.",
    ),
    click.option("--job", metavar="NAME", help="Refuse when the running job is another one."),
    option(
        "--format",
        "savepoint_format",
        type=click.Choice(["native", "canonical"]),
        default="native",
        help="Native: at once, shares files with the job. Canonical: all rows in files of its "
        "own, for any kind of table.",
    ),
)


@click.command("savepoint")
@on_store
@_savepoint_options
@click.option("--name", help="Its name; default: savepoint-DATE-TIME.")
async def savepoint_command(
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
    return await _carry_out(invocation, request, "savepoint")


@click.command("stop")
@on_store
@_savepoint_options
@click.option("--savepoint", "name", metavar="NAME", help="Its name; default: savepoint-DATE-TIME.")
@click.option(
    "--drain",
    is_flag=True,
    help="First fire all windows and timers, as at the end of the data: the job is complete then "
    "and does not go on from here.",
)
async def stop_command(
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
    return await _carry_out(invocation, request, "stopping")


async def _carry_out(invocation: StoreCommand, request: Request, what: str) -> int:
    """Ask the job, show the progress, print the savepoint."""
    output = invocation.output
    with output.progress(what) as step:

        def show(progress: Progress) -> None:
            step(progress.durable, progress.subtasks)

        try:
            done = await ask(request, show)
        except ControlError:
            await refuse_application(invocation.store)
            raise
    if output.as_json:
        output.document({"url": request.store, **_fields(done, request)})
    else:
        verb = "stopped with" if request.operation == "stop" else "completed"
        output.line(
            f"{done.job}: {verb} {done.format} savepoint {done.name} in slot {done.slot}"
            + (", drained" if done.final else "")
        )
    return EXIT_OK


def _fields(done: Done, request: Request) -> dict[str, Any]:
    """The answer as JSON."""
    return {
        "job": done.job,
        "generation": done.generation,
        "name": done.name,
        "savepoint_format": done.format,
        "slot": done.slot,
        "checkpoint_id": done.checkpoint_id,
        "stopped": request.operation == "stop",
        "drained": done.final,
    }
