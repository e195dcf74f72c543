"""The command line; one file per command.

Invariant: a command's module is imported only when that command runs, so `tidelog --help` costs
no more than click itself.
"""

from typing import Final

import click

from tidelog.cli.lazy import LazyGroup

_COMMANDS: Final = {
    "bench": "Run the benchmarks, compare sessions, write a report.",
    "checkpoints": "List checkpoints and show what they hold.",
    "doctor": "Test whether a store is safe for jobs.",
    "estimate": "Estimate storage, requests and the bill of a job; needs no store.",
    "fork": "Begin another store with a checkpoint of this one.",
    "inspect": "Check every invariant of a store.",
    "log": "Print the changes in the log, decoded.",
    "overhead": "Measure what the changelog of a job costs, beside what formulas predict.",
    "plan": "Find settings for a restore time and a budget; needs no store.",
    "restore": "Write a checkpoint's state to a local directory.",
    "run": "Run a job in this process until its input ends.",
    "savepoint": "Take a savepoint of a running job.",
    "simulate": "Run whole jobs in virtual time, under faults, and check what must hold.",
    "spark": "Work with Spark Structured Streaming: settings, jar, checkpoints.",
    "stop": "Stop a running job with a savepoint.",
    "sweep": "Delete objects that crashes left behind.",
    "verify": "Restore every checkpoint and compare it with what it should be.",
}
"""What `tidelog --help` says; the module of the same name has the rest as `command`."""


@click.group(cls=LazyGroup, about=_COMMANDS)
@click.version_option(package_name="tidelog", prog_name="tidelog", message="%(prog)s %(version)s")
def main() -> None:
    """Durable state for stream processing: run jobs, look into their stores, mend them.

    A store URL is a path, file:///path, s3://bucket/prefix, or a URL of any scheme fsspec knows.
    """
