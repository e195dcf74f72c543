"""`tidelog spark`: the plug-in for Spark Structured Streaming; one file per command.

Invariant: a command's module is imported only when that command runs.
"""

from typing import Final

import click

from tidelog.cli.lazy import LazyGroup

_COMMANDS: Final = {
    "checkpoints": "Show what a query's checkpoint holds.",
    "conf": "Print the settings that turn the plug-in on.",
    "doctor": "Check whether a query's settings give the guarantees.",
    "export": "Turn a checkpoint back into one of Spark alone.",
    "jar": "Compile the plug-in and say where its jar is.",
    "rebuild-index": "Write the lost parts of a checkpoint's index again.",
}
"""What `tidelog spark --help` says; `spark_<name>` has the rest as `command`."""


@click.group("spark", cls=LazyGroup, about=_COMMANDS, prefix="spark_")
def command() -> None:
    """Work with Spark Structured Streaming: settings, jar, checkpoints.

    In PySpark, `tidelog.spark.configure(SparkSession.builder)` does what conf and jar do.
    """
