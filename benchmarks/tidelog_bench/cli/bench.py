"""`tidelog bench`: experiments, sessions, comparisons, reports; one file per command."""

from typing import Final

import click

from tidelog.cli.lazy import LazyCommand, LazyGroup

_COMMANDS: Final = {
    "compare": LazyCommand(
        "tidelog_bench.cli.compare",
        "Show what moved beyond noise between two sessions.",
    ),
    "list": LazyCommand(
        "tidelog_bench.cli.list",
        "List the experiments and how long each takes.",
    ),
    "report": LazyCommand(
        "tidelog_bench.cli.report",
        "Write an HTML page of a session, or print its summary.",
    ),
    "run": LazyCommand(
        "tidelog_bench.cli.run",
        "Run experiments and record every trial.",
    ),
    "sessions": LazyCommand(
        "tidelog_bench.cli.sessions",
        "List the recorded sessions.",
    ),
}


@click.group("bench", cls=LazyGroup, lazy=_COMMANDS)
def command() -> None:
    """Run the benchmarks: pairs of runs that alternate, recorded as JSON lines, and their report.

    Begin with `tidelog bench run all --quick`; it takes ten minutes at most.
    """
