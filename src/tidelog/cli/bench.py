"""`tidelog bench`: experiments, sessions, comparisons, reports; one file per command."""

from typing import Final

import click

from tidelog.cli.lazy import LazyGroup

_COMMANDS: Final = {
    "compare": "Show what moved beyond noise between two sessions.",
    "list": "List the experiments and how long each takes.",
    "report": "Write an HTML page of a session, or print its summary.",
    "run": "Run experiments and record every trial.",
    "sessions": "List the recorded sessions.",
}
"""What `tidelog bench --help` says; `bench_<name>` has the rest as `command`."""


@click.group("bench", cls=LazyGroup, about=_COMMANDS, prefix="bench_")
def command() -> None:
    """Run the benchmarks: pairs of runs that alternate, recorded as JSON lines, and their report.

    Begin with `tidelog bench run all --quick`; it takes ten minutes.
    """
