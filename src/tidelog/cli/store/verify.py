"""`tidelog verify`: every checkpoint restored, and compared with what it should be."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click

from tidelog.cli.options import option
from tidelog.cli.spark.options import on_spark, on_store_or_checkpoint
from tidelog.cli.store.options import EXIT_OK, EXIT_PROBLEM, StoreCommand
from tidelog.cli.store.verify_output import fields, show
from tidelog.errors import ConfigError
from tidelog.spark.checkpoint.location import Layout, find_layout
from tidelog.spark.session import session
from tidelog.verify.engines import LocalEngine, SparkEngine
from tidelog.verify.expected.comparison import TruthResult
from tidelog.verify.expected.function import Expected, load_function
from tidelog.verify.expected.of_query import QueryTruth
from tidelog.verify.expected.of_store import StoreTruth
from tidelog.verify.job.verification import verify_store
from tidelog.verify.query.verification import verify_query
from tidelog.verify.report import Report
from tidelog.verify.unit import Choice, Engine, WorkerConfig

_MEMORY: Final = "memory://"
_S3: Final = re.compile(r"^s3://")


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for, besides the URL."""

    chosen: Choice
    engine: str
    master: str | None
    conf: Mapping[str, str]
    jobs: int | None
    work_dir: str | None
    question: Expected | None


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
@click.option(
    "--against",
    metavar="MODULE:FUNCTION",
    help="Compare a state with what this function returns; see docs/guides/verify.md.",
)
@click.option("--operator", metavar="ID", help="--against: the operator.")
@click.option("--state", metavar="NAME", help="--against: the state.")
async def command(
    invocation: StoreCommand,
    /,
    against: str | None,
    operator: str | None,
    state: str | None,
    **given: Any,
) -> int:
    """Restore every checkpoint at URL, check every byte, row and object; nothing is written.

    URL is a store of tidelog, or the checkpoint of a Spark query. Where retained checkpoints
    allow it, each partition is also restored from the materialization before, and both must
    agree. Exits with 0 only if every checkpoint can be restored and nothing is wrong.
    """
    if against is None and (operator is not None or state is not None):
        raise ConfigError(
            "--operator, --state",
            expected="--against with them",
            found="nothing to compare with",
            action="add --against MODULE:FUNCTION, or leave them out",
        )
    question = (
        Expected(against, load_function(against), operator, state) if against is not None else None
    )
    options = Options(question=question, **given)
    layout = await find_layout(invocation.store)
    with _engine(invocation, options, layout) as engine:
        with invocation.output.progress("verifying") as progress:
            verify = verify_store if layout == "job" else verify_query
            report = await verify(
                invocation.store, engine, chosen=options.chosen, progress=progress
            )
        if options.question is not None:
            report = await _with_truth(invocation, options, options.question, engine, report)
    if invocation.output.as_json:
        invocation.output.document(fields(report))
    else:
        show(invocation.output, report)
    return EXIT_OK if report.passed else EXIT_PROBLEM


@contextmanager
def _engine(invocation: StoreCommand, options: Options, layout: Layout) -> Iterator[Engine]:
    """The engine that was asked for; raises ConfigError when it cannot be had."""
    scratch = None if options.work_dir is None else str(Path(options.work_dir).absolute())
    place = WorkerConfig(invocation.store.url, invocation.access, scratch)
    if options.engine == "local":
        if options.question is not None and layout == "query":
            raise ConfigError(
                "--engine local with --against",
                expected="--engine spark: the state of a Spark query is read by Spark",
                action="leave --engine out",
            )
        yield LocalEngine(invocation.store, invocation.effects, place, options.jobs)
        return
    if place.url.startswith(_MEMORY):
        raise ConfigError(
            f"store {place.url}",
            expected="a store that other processes can open",
            found="one in the memory of this process",
            action="use --engine local",
        )
    plugin = layout == "query" and options.question is not None
    with session(options.master, options.conf, plugin=plugin) as spark:
        yield SparkEngine(spark, invocation.effects, place)


async def _with_truth(
    invocation: StoreCommand,
    options: Options,
    question: Expected,
    engine: Engine,
    report: Report,
) -> Report:
    """The report with the newest checkpoint that can be restored compared to the truth."""
    restorable = [
        checkpoint.checkpoint
        for checkpoint in report.checkpoints
        if checkpoint.verdict in {"sound", "doubtful"}
    ]
    if not restorable:
        return report
    with invocation.output.progress("comparing"):
        truth = await _truth(invocation, options, question, engine, report.layout, restorable[-1])
    return replace(report, truth=truth)


async def _truth(
    invocation: StoreCommand,
    options: Options,
    question: Expected,
    engine: Engine,
    layout: Layout,
    checkpoint: int,
) -> TruthResult:
    store, effects = invocation.store, invocation.effects
    if layout == "query" and engine.session is not None:
        location = _S3.sub("s3a://", invocation.url)
        return await QueryTruth(store, effects, engine.session, location, question).compare(
            checkpoint
        )
    return await StoreTruth(store, effects, engine, options.work_dir, question).compare(checkpoint)
