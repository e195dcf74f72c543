"""The command line: a room per kind of command, one file for commands that go together.

Invariant: a command's module is imported only when that command runs, so `tidelog --help` costs
no more than click itself.
"""

import signal
from typing import Final

import click

from tidelog.cli.lazy import LazyCommand, LazyGroup


def _commands(*found: tuple[str, str, str]) -> dict[str, LazyCommand]:
    """Commands by name, each with its place in this package and a line for `--help`."""
    return {name: LazyCommand(f"tidelog.cli{place}", about) for name, place, about in found}


_COMMANDS: Final = _commands(
    ("checkpoints", ".store.checkpoints", "List checkpoints and show what they hold."),
    ("config", ".run.config", "Show, check and explain the options of a job."),
    ("doctor", ".store.health:doctor_command", "Test whether a store is safe for jobs."),
    (
        "estimate",
        ".estimate.estimate",
        "Estimate storage, requests and the bill of a job; needs no store.",
    ),
    ("fork", ".store.fork", "Begin another store with a checkpoint of this one."),
    ("inspect", ".store.health:inspect_command", "Check every invariant of a store."),
    ("key", ".store.key", "Make the key of an encrypted store, or change it."),
    ("log", ".store.log", "Print the changes in the log, decoded."),
    (
        "overhead",
        ".estimate.overhead",
        "Measure what the changelog of a job costs, and what formulas predict.",
    ),
    ("plan", ".estimate.plan", "Find settings for a restore time and a budget; needs no store."),
    ("report", ".store.ui:report_command", "Write what `ui` shows as one HTML file."),
    ("restore", ".store.restore", "Write a checkpoint's state to a local directory."),
    ("run", ".run.run", "Run a job in this process until its input ends."),
    ("savepoint", ".run.control:savepoint_command", "Take a savepoint of a running job."),
    ("spark", ":spark_group", "Work with Spark Structured Streaming: settings, jar, checkpoints."),
    ("stop", ".run.control:stop_command", "Stop a running job with a savepoint."),
    ("sweep", ".store.health:sweep_command", "Delete objects that crashes left behind."),
    ("ui", ".store.ui:ui_command", "Show a job and its store on a page in the browser."),
    ("verify", ".store.verify", "Restore every checkpoint and compare it with what it should be."),
)
"""The commands of the library; `bench` is an entry point of its own package."""
_SPARK: Final = _commands(
    (
        "checkpoints",
        ".spark.checkpoints:checkpoints_command",
        "Show what a query's checkpoint holds.",
    ),
    ("conf", ".spark.conf:conf_command", "Print the settings that turn the plug-in on."),
    (
        "doctor",
        ".spark.conf:doctor_command",
        "Check whether a query's settings give the guarantees.",
    ),
    (
        "export",
        ".spark.checkpoints:export_command",
        "Turn a checkpoint back into one of Spark alone.",
    ),
    ("jar", ".spark.conf:jar_command", "Compile the plug-in and say where its jar is."),
)


@click.group("spark", cls=LazyGroup, lazy=_SPARK)
def spark_group() -> None:
    """Work with Spark Structured Streaming: settings, jar, checkpoints.

    In PySpark, `tidelog.spark.configure(SparkSession.builder)` does what conf and jar do.
    """


@click.group(cls=LazyGroup, lazy=_COMMANDS, entry_points="tidelog.commands")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    default="warning",
    show_default=True,
    help="Least level of log records on standard error.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Form of log records: lines for people, or a JSON document per line.",
)
@click.version_option(package_name="tidelog", prog_name="tidelog", message="%(prog)s %(version)s")
@click.pass_context
def main(context: click.Context, log_level: str, log_format: str) -> None:
    """Durable state for stream processing: run jobs, look into their stores, mend them.

    A store URL is a path, file:///path, s3://bucket/prefix, or a URL of any scheme fsspec knows.
    """
    from tidelog.cli.logs import show_logs  # noqa: PLC0415  # not needed for --help

    # From now on there may be something to end in order.
    if getattr(signal.getsignal(signal.SIGINT), "__name__", "") == "end_at_once":
        signal.signal(signal.SIGINT, signal.default_int_handler)
    show_logs(context, log_level, log_format)
