"""`tidelog verify`: every checkpoint restored and checked."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from tidelog.cli.options import option
from tidelog.cli.spark.options import on_spark, on_store_or_checkpoint
from tidelog.cli.store.options import EXIT_OK, EXIT_PROBLEM, StoreCommand
from tidelog.cli.store.verify_output import fields, show
from tidelog.errors import ConfigError
from tidelog.spark.checkpoint.location import find_layout
from tidelog.spark.session import session
from tidelog.verify.engines import LocalEngine, SparkEngine
from tidelog.verify.job.verification import verify_store
from tidelog.verify.query.verification import verify_query
from tidelog.verify.unit import Choice, Engine, WorkerConfig

_MEMORY: Final = "memory://"


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for, besides the URL."""

    chosen: Choice
    engine: str
    master: str | None
    conf: Mapping[str, str]
    jobs: int | None
    work_dir: str | None


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
@option(
    "--engine",
    type=click.Choice(["spark", "local"]),
    default="spark",
    help="A Spark job, or plain Python on this machine.",
)
@on_spark
@click.option(
    "--jobs", type=click.IntRange(min=1), help="--engine local: processes; by default as needed."
)
@click.option(
    "--work-dir",
    metavar="DIR",
    help="Where partitions are restored; by default the system's temporary directory.",
)
async def command(invocation: StoreCommand, /, **given: Any) -> int:
    """Restore every checkpoint at URL, check every byte, row and object; nothing is written.

    URL is a store of tidelog, or the checkpoint of a Spark query. Where retained checkpoints
    allow it, each partition is also restored from the materialization before, and both must
    agree. Exits with 0 only if every checkpoint can be restored and nothing is wrong.
    """
    options = Options(**given)
    layout = await find_layout(invocation.store)
    verify = verify_store if layout == "job" else verify_query
    with (
        _engine(invocation, options) as engine,
        invocation.output.progress("verifying") as progress,
    ):
        report = await verify(invocation.store, engine, chosen=options.chosen, progress=progress)
    if invocation.output.as_json:
        invocation.output.document(fields(report))
    else:
        show(invocation.output, report)
    return EXIT_OK if report.passed else EXIT_PROBLEM


@contextmanager
def _engine(invocation: StoreCommand, options: Options) -> Iterator[Engine]:
    """The engine that was asked for; raises ConfigError when it cannot be had."""
    scratch = None if options.work_dir is None else str(Path(options.work_dir).absolute())
    place = WorkerConfig(invocation.store.url, invocation.access, scratch)
    if options.engine == "local":
        yield LocalEngine(invocation.store, invocation.effects, place, options.jobs)
        return
    if place.url.startswith(_MEMORY):
        raise ConfigError(
            f"store {place.url}",
            expected="a store that other processes can open",
            found="one in the memory of this process",
            action="use --engine local",
        )
    with session(options.master, options.conf) as spark:
        yield SparkEngine(spark, invocation.effects, place)
