"""`tidelog run`: run a job in this process until its input ends."""

from collections.abc import Callable

import click

from tidelog.cli.options import options_of
from tidelog.cli.run.options import (
    HELP_ALL,
    MetricsOptions,
    RunOptions,
    SectionedCommand,
    StartOptions,
    config_options,
)
from tidelog.settings import Resolved

_EXIT_CODES = """\b
Exit codes:
  0    the job finished, had finished before, or was stopped with a savepoint
  1    it failed; the message says what to do, another start resumes
  2    wrong usage: an option or the job's definition, which no other start can help
  3    fenced: a newer start of the job took over the store
  130  stopped by Ctrl-C, SIGTERM or SIGHUP; another start resumes
"""


@click.command("run", cls=SectionedCommand, epilog=_EXIT_CODES)
@click.argument("job")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGUMENTS]")
@options_of("run", RunOptions)
@config_options
@options_of("start", StartOptions)
@options_of("metrics", MetricsOptions)
@HELP_ALL
def command(
    job: str,
    arguments: tuple[str, ...],
    run: RunOptions,
    config: Callable[[], Resolved],
    start: StartOptions,
    metrics: MetricsOptions,
) -> None:
    """Run JOB until its input ends.

    JOB is wordcount, sessions, outages, module:attribute or file.py:attribute: the attribute is a
    Job or a function that returns one and may take a JobArguments, or a dataclass of its own that
    its parameter is annotated with. What follows `--` at the end are arguments of the job. The same
    command started again resumes from the last checkpoint in the store.
    """
    # The rest imports what runs jobs, which neither `--help` nor a wrong option needs.
    from tidelog.cli.run.process import run_in_process  # noqa: PLC0415

    run_in_process(job, run.arguments(arguments), run, config, start, metrics)
