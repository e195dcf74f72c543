"""`tidelog verify`: every checkpoint restored and checked."""

from collections.abc import Mapping

import click

from tidelog.cli.options import option
from tidelog.cli.spark.engine import on_engine, open_engine
from tidelog.cli.spark.options import on_store_or_checkpoint
from tidelog.cli.store.options import EXIT_OK, EXIT_PROBLEM, StoreCommand
from tidelog.cli.store.verify_output import show
from tidelog.verify.results import Choice
from tidelog.verify.verification import verify


def _choice(text: str) -> Choice:
    """A checkpoint's number, `latest` or `all`; raises BadParameter."""
    if text in {"all", "latest"}:
        return text  # type: ignore[return-value]
    if not text.isdecimal():
        raise click.BadParameter(f"{text!r} is neither a number nor 'latest' nor 'all'")
    return int(text)


@click.command("verify")
@on_store_or_checkpoint
@option(
    "--slot",
    "chosen",
    type=_choice,
    metavar="N",
    default="all",
    help="One checkpoint: its slot (of a Spark query: its batch), or latest.",
)
@on_engine
@click.option(
    "--jobs", type=click.IntRange(min=1), help="--engine local: processes; by default as needed."
)
@click.option(
    "--work-dir",
    metavar="DIR",
    help="Where partitions are restored; by default the system's temporary directory.",
)
async def command(
    invocation: StoreCommand,
    chosen: Choice,
    engine: str | None,
    master: str | None,
    conf: Mapping[str, str],
    jobs: int | None,
    work_dir: str | None,
) -> int:
    """Restore every checkpoint at URL, check every byte, row and object; nothing is written.

    URL is a store of tidelog, or the checkpoint of a Spark query. Where retained checkpoints
    allow it, each partition is also restored from the materialization before, and both must
    agree. Exits with 0 only if every checkpoint can be restored and nothing is wrong.
    """
    opened = open_engine(
        invocation, "tidelog verify", engine, master, conf, jobs=jobs, work_dir=work_dir
    )
    with opened as chosen_engine, invocation.output.progress("verifying") as progress:
        report = await verify(invocation.store, chosen_engine, chosen=chosen, progress=progress)
    show(invocation.output, report)
    return EXIT_OK if report.passed else EXIT_PROBLEM
