"""`tidelog savepoint` and `tidelog stop`: ask a running job for a savepoint.

Invariant: the answer of the job is printed as it came; an error ends the command with 1.
"""

from dataclasses import dataclass

import click

from tidelog.catalog.application import refuse_application
from tidelog.checkpoint.manifest import SavepointFormat
from tidelog.cli.exit_codes import EXIT_OK
from tidelog.cli.options import declared, options_of
from tidelog.cli.store.options import StoreCommand, on_store
from tidelog.cli.values import duration
from tidelog.errors import ControlError
from tidelog.runtime.control.client import ask
from tidelog.runtime.control.protocol import Operation, Request


@dataclass(frozen=True, slots=True)
class SavepointOptions:
    timeout: float | None = declared(
        "--timeout",
        type=duration,
        help="Give up after this time; default: the job's --checkpoint-timeout.",
    )
    job: str | None = declared(
        "--job", metavar="NAME", help="Refuse when the running job is another one."
    )
    format: SavepointFormat = declared(  # noqa: RUF009  # a field, as the others
        "--format",
        type=click.Choice(["native", "canonical"]),
        default="native",
        help="Native: at once, shares files with the job. Canonical: all rows in files of its "
        "own, for any kind of table.",
    )


@click.command("savepoint")
@on_store
@options_of("options", SavepointOptions)
@click.option("--name", help="Its name; default: savepoint-DATE-TIME.")
async def savepoint_command(
    invocation: StoreCommand, name: str | None, options: SavepointOptions
) -> int:
    """Take a savepoint of the job that runs on the store at URL, on this machine.

    The job goes on, whether it succeeds or fails. A savepoint stays until
    `tidelog checkpoints drop` removes it.
    """
    return await _carry_out(invocation, "savepoint", name, options)


@click.command("stop")
@on_store
@options_of("options", SavepointOptions)
@click.option("--savepoint", "name", metavar="NAME", help="Its name; default: savepoint-DATE-TIME.")
@click.option(
    "--drain",
    is_flag=True,
    help="First fire all windows and timers, as at the end of the data: the job is complete then "
    "and does not go on from here.",
)
async def stop_command(
    invocation: StoreCommand, name: str | None, options: SavepointOptions, drain: bool
) -> int:
    """Stop the job that runs on the store at URL, on this machine, with a savepoint.

    Nothing is emitted after the savepoint, and sinks have committed what lies before it. The same
    `tidelog run` goes on exactly there. When the savepoint fails the job goes on reading.
    """
    return await _carry_out(invocation, "stop", name, options, drain=drain)


async def _carry_out(
    invocation: StoreCommand,
    operation: Operation,
    name: str | None,
    options: SavepointOptions,
    *,
    drain: bool = False,
) -> int:
    url, stopping = invocation.store.url, operation == "stop"
    request = Request(
        store=url,
        operation=operation,
        job=options.job,
        name=name,
        format=options.format,
        drain=drain,
        timeout_s=options.timeout,
    )
    with invocation.output.progress("stopping" if stopping else operation) as step:
        try:
            done = await ask(request, lambda now: step(now.durable, now.subtasks))
        except ControlError:
            await refuse_application(invocation.store)
            raise
    savepoint = {
        "url": url,
        "job": done.job,
        "generation": done.generation,
        "name": done.name,
        "savepoint_format": done.format,
        "checkpoint": done.checkpoint,
        "stopped": stopping,
        "drained": done.final,
    }
    invocation.output.show(
        savepoint,
        f"{done.job}: {'stopped with' if stopping else 'completed'} {done.format} savepoint "
        f"{done.name}, checkpoint {done.checkpoint}{', drained' if done.final else ''}",
    )
    return EXIT_OK
