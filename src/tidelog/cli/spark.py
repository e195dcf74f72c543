"""`tidelog spark`: the plug-in for Spark Structured Streaming; one file per command.

Invariant: a command's module is imported only when that command runs.
"""

from importlib import import_module
from typing import Final

import click

_COMMANDS: Final = {
    "checkpoints": "Show what a query's checkpoint holds.",
    "conf": "Print the settings that turn the plug-in on.",
    "doctor": "Check whether a query's settings give the guarantees.",
    "export": "Turn a checkpoint back into one of Spark alone.",
    "jar": "Compile the plug-in and say where its jar is.",
    "rebuild-index": "Write the lost parts of a checkpoint's index again.",
}
"""What `tidelog spark --help` says; `spark_<name>` has the rest as `command`."""


class _LazyCommands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"tidelog.cli.spark_{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_COMMANDS.items()))


@click.group("spark", cls=_LazyCommands)
def command() -> None:
    """Work with Spark Structured Streaming: settings, jar, checkpoints.

    In PySpark, `tidelog.spark.configure(SparkSession.builder)` does what conf and jar do.
    """
