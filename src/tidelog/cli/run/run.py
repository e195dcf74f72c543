"""`tidelog run`: run a job in this process until its input ends."""

from collections.abc import Callable

import click

from tidelog.cli.options import log_store_option, option
from tidelog.cli.run.config_options import SectionedCommand, config_options
from tidelog.cli.run.metrics_options import MetricsOptions, metrics_options
from tidelog.cli.run.origin_options import StartOptions, start_options
from tidelog.cli.values import duration
from tidelog.settings.resolve import Resolved

_EXIT_CODES = """\b
Exit codes:
  0    the job finished, had finished before, or was stopped with a savepoint
  1    it failed; the message says what to do, another start resumes
  2    wrong usage: an option, the job's definition or an input
  3    fenced: a newer start of the job took over the store
  130  stopped by Ctrl-C or SIGTERM; another start resumes
"""


@click.command("run", cls=SectionedCommand, epilog=_EXIT_CODES)
@click.argument("job")
@click.option("--input", help="Input of the job: a path.")
@click.option("--store", required=True, metavar="URL", help="Where checkpoints and state go.")
@log_store_option
@click.option("--endpoint", metavar="URL", help="S3 endpoint, when it is not that of AWS.")
@click.option("--output", help="Output directory; without it results go to standard output.")
@config_options
@option("--include", default="*", metavar="GLOB", help="Input files.")
@click.option("--follow", is_flag=True, help="Never end: wait for more input.")
@start_options
@metrics_options
@click.option("--report-interval", type=duration, help="How often to report without a terminal.")
@click.option("--json", "as_json", is_flag=True, help="Report as JSON lines on standard output.")
@click.option("--quiet", is_flag=True, help="Report errors only.")
@click.option("--debug", is_flag=True, help="Print tracebacks.")
def command(
    job: str,
    input: str | None,
    store: str,
    log_store: str | None,
    endpoint: str | None,
    output: str | None,
    config: Callable[[], Resolved],
    include: str,
    follow: bool,
    start: StartOptions,
    metrics: MetricsOptions,
    report_interval: float | None,
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> None:
    """Run JOB until its input ends.

    JOB is wordcount, sessions, outages, or module:attribute: the attribute is a Job or a function
    that returns one and may take a JobArguments. The same command started again resumes from the
    last checkpoint in the store.
    """
    # The rest imports what runs jobs, which neither `--help` nor a wrong option needs.
    from tidelog.cli.run.process import Start, report, reporter_for  # noqa: PLC0415
    from tidelog.runtime.arguments import JobArguments  # noqa: PLC0415

    arguments = JobArguments(input, output, include, follow)
    started = Start(job, arguments, store, log_store, endpoint, config, start)
    reporter = reporter_for(as_json=as_json, quiet=quiet, interval_s=report_interval)
    report(started.run(reporter, metrics), reporter, debug=debug)
