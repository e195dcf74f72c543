"""`tidelog spark`: the plug-in for Spark Structured Streaming; one file per command.

Invariant: a command's module is imported only when that command runs.
"""

from typing import Final

import click

from tidelog.cli.lazy import LazyCommand, LazyGroup

_COMMANDS: Final = {
    "checkpoints": LazyCommand(
        "tidelog.cli.spark.checkpoints",
        "Show what a query's checkpoint holds.",
    ),
    "conf": LazyCommand(
        "tidelog.cli.spark.conf",
        "Print the settings that turn the plug-in on.",
    ),
    "doctor": LazyCommand(
        "tidelog.cli.spark.doctor",
        "Check whether a query's settings give the guarantees.",
    ),
    "export": LazyCommand(
        "tidelog.cli.spark.export",
        "Turn a checkpoint back into one of Spark alone.",
    ),
    "jar": LazyCommand(
        "tidelog.cli.spark.jar",
        "Compile the plug-in and say where its jar is.",
    ),
    "rebuild-index": LazyCommand(
        "tidelog.cli.spark.rebuild_index",
        "Write the lost parts of a checkpoint's index again.",
    ),
}


@click.group("spark", cls=LazyGroup, lazy=_COMMANDS)
def command() -> None:
    """Work with Spark Structured Streaming: settings, jar, checkpoints.

    In PySpark, `tidelog.spark.configure(SparkSession.builder)` does what conf and jar do.
    """
