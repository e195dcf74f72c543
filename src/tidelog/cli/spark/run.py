"""`tidelog spark run`: a job as a query of Spark Structured Streaming."""

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.exit_codes import EXIT_INTERRUPTED, EXIT_OK
from tidelog.cli.options import (
    CONF,
    add_options,
    declared,
    encryption_key_option,
    endpoint_option,
    options_of,
)
from tidelog.cli.output import Output
from tidelog.cli.store.options import on_this_machine
from tidelog.errors import UnavailableError
from tidelog.options.units import plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.job.run import JobQuery

_LOOK_S = 1


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """Where a query reads and writes."""

    input: str | None = declared("--input", help="Input of the job: a path.")
    output: str | None = declared("--output", help="Output of the job: a directory.")
    include: str = declared("--include", default="*", metavar="GLOB", help="Input files.")
    follow: bool = declared("--follow", is_flag=True, help="The job waits for more input.")
    checkpoint: str = declared(
        "--checkpoint", required=True, metavar="URL", help="Where the query's state goes."
    )
    origin: str | None = declared(
        "--from",
        metavar="URL@NAME",
        help="Go on with the state of a stopped embedded job, from this savepoint; @latest for one "
        "that has ended.",
    )
    allowed: tuple[str, ...] = declared(
        "--allow-non-restored-state",
        multiple=True,
        metavar="OPERATOR",
        help="State of the savepoint that may be left out; may be repeated.",
    )
    available_now: bool = declared(
        "--available-now", is_flag=True, help="End when the input that is there is handled."
    )
    trigger: str | None = declared(
        "--trigger",
        metavar="INTERVAL",
        help="How often a batch begins, such as '10 seconds'; by default when the last has ended.",
    )
    files_per_batch: int | None = declared(
        "--files-per-batch", type=click.IntRange(min=1), help="The most files of a batch."
    )
    messages_per_batch: int | None = declared(
        "--messages-per-batch",
        type=click.IntRange(min=1),
        help="The most messages of Kafka of a batch.",
    )
    records_per_batch: int = declared(
        "--records-per-batch",
        type=click.IntRange(min=1),
        default=1 << 20,
        help="The most records of a split of a source of your own in a batch.",
    )
    kafka: Mapping[str, str] = declared(
        "--kafka", **{**CONF, "help": "An option of Spark's source for Kafka; may be repeated."}
    )
    master: str | None = declared(
        "--master", metavar="URL", help="Spark's master; by default local[*]."
    )
    conf: Mapping[str, str] = declared("--conf", **CONF)


@click.command("run")
@click.argument("job")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGUMENTS]")
@options_of("options", QueryOptions)
@add_options(endpoint_option, encryption_key_option)
@on_this_machine
def run_command(
    output: Output,
    /,
    job: str,
    arguments: tuple[str, ...],
    options: QueryOptions,
    endpoint: str | None,
    encryption_key: str | None,
) -> int:
    """Run JOB as a query of Spark Structured Streaming.

    JOB is what `tidelog run` takes: module:attribute or file.py:attribute. The same operators have
    the same state there, in the query's checkpoint. Started again, the command resumes.
    """
    from tidelog.cli.run.definition import load_job  # noqa: PLC0415  # not needed for --help
    from tidelog.runtime.config import JobArguments  # noqa: PLC0415
    from tidelog.spark.failures import translated  # noqa: PLC0415
    from tidelog.spark.job.sources import SourceOptions  # noqa: PLC0415
    from tidelog.spark.jobs import run  # noqa: PLC0415

    definition = load_job(
        job, JobArguments(options.input, options.output, options.include, options.follow, arguments)
    )
    handling = translated(
        UnavailableError,
        f"the query of job {definition.name!r}",
        expected="every batch to be handled",
        action="correct what it says and start again: the query resumes with that batch",
    )
    with _session(job, options) as spark, _ending() as stopped, handling:
        query = run(
            definition,
            checkpoint=options.checkpoint,
            spark=spark,
            available_now=options.available_now,
            trigger=options.trigger,
            sources=SourceOptions(
                files_per_batch=options.files_per_batch,
                messages_per_batch=options.messages_per_batch,
                records_per_batch=options.records_per_batch,
                kafka=options.kafka,
            ),
            savepoint=options.origin,
            allow_non_restored_state=options.allowed,
            endpoint=endpoint,
            encryption_key=encryption_key,
        )
        is_ended = _waited(query, stopped)
        late = sum(query.late_records.values())
    outcome = "ended" if is_ended else "stopped"
    output.show(
        {"job": definition.name, "ended": is_ended, "late_records": late},
        f"{outcome}, {plural(late, 'record')} late" if late else outcome,
    )
    return EXIT_OK if is_ended else EXIT_INTERRUPTED


def _waited(query: "JobQuery", stopped: list[int]) -> bool:
    """Wait until the query has ended, or a signal stops it; whether it has ended."""
    while not query.wait(_LOOK_S):
        if stopped:
            query.stop()
            return False
    return True


@contextmanager
def _session(job: str, options: QueryOptions) -> Iterator["SparkSession"]:
    """A session with the plug-in, whose executors find the job's file."""
    from tidelog.spark.plugin.settings import with_plugin  # noqa: PLC0415  # not needed for --help
    from tidelog.spark.session import session  # noqa: PLC0415

    conf = with_plugin(options.conf)
    with session(f"tidelog spark run {job}", options.master, conf, otherwise="") as spark:
        file = Path(job.partition(":")[0])
        if file.suffix == ".py":
            spark.sparkContext.addPyFile(str(file))
        yield spark


@contextmanager
def _ending() -> Iterator[list[int]]:
    """Within, signals that end a process are collected: the batch under way may be given up."""
    received: list[int] = []

    def take(number: int, frame: FrameType | None) -> None:
        received.append(number)

    signals = signal.SIGINT, signal.SIGTERM
    before: dict[signal.Signals, Any] = {number: signal.signal(number, take) for number in signals}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
