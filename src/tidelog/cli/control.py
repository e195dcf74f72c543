"""What the commands that ask a running job have in common: options, progress, the answer.

Invariant: the answer of the job is printed as it came; an error ends the command with 1.
"""

from collections.abc import Callable
from typing import Any

import click

from tidelog.cli.durations import duration
from tidelog.cli.options import EXIT_OK, StoreCommand
from tidelog.runtime.control.client import ask
from tidelog.runtime.control.protocol import Done, Progress, Request


def savepoint_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --format, --job and --timeout."""
    for option in (
        click.option(
            "--format",
            "savepoint_format",
            type=click.Choice(["native", "canonical"]),
            default="native",
            show_default=True,
            help="Native: at once, shares files with the job. Canonical: all rows in files of its "
            "own, for any kind of table.",
        ),
        click.option("--job", metavar="NAME", help="Refuse when the running job is another one."),
        click.option(
            "--timeout",
            type=duration,
            help="Give up after this time; default: the job's --checkpoint-timeout.",
        ),
    ):
        function = option(function)
    return function


async def carry_out(invocation: StoreCommand, request: Request, what: str) -> int:
    """Ask the job, show the progress, print the savepoint."""
    output = invocation.output
    with output.progress(what) as step:

        def show(progress: Progress) -> None:
            step(progress.durable, progress.subtasks)

        done = await ask(request, show)
    if output.as_json:
        output.document({"url": request.store, **fields(done, request)})
    else:
        verb = "stopped with" if request.operation == "stop" else "completed"
        output.line(
            f"{done.job}: {verb} {done.format} savepoint {done.name} in slot {done.slot}"
            + (", drained" if done.final else "")
        )
    return EXIT_OK


def fields(done: Done, request: Request) -> dict[str, Any]:
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
