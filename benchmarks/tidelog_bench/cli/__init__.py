"""`tidelog bench`: experiments, sessions, reports."""

from typing import Final

import click

from tidelog.cli import LazyCommand, LazyGroup

COMMAND: Final = LazyCommand("tidelog_bench.cli", "Run the benchmarks and write a report.")
"""`tidelog bench`, found through the entry point `tidelog.commands`."""
_COMMANDS: Final = {
    name: LazyCommand(f"tidelog_bench.cli.{module}", about)
    for name, module, about in (
        ("compare", "results:compare", "Say how the figures of two sessions differ."),
        ("list", "run:list_experiments", "List the experiments and how long each takes."),
        ("report", "results:report", "Print a page of Markdown of recorded sessions."),
        ("run", "run:run", "Run experiments and record every trial."),
        ("sessions", "results:sessions", "List the recorded sessions."),
    )
}


@click.group("bench", cls=LazyGroup, lazy=_COMMANDS)
def command() -> None:
    """Run the benchmarks: pairs of runs that alternate, recorded as JSON lines, and their report.

    Begin with `tidelog bench run all --quick`; it takes five minutes.
    """
