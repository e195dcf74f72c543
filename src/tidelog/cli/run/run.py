"""`tidelog run`: run a job in this process until its input ends."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import Any, NoReturn

import click

from tidelog.cli.output import print_traceback
from tidelog.cli.run.config_options import SectionedCommand, config_options
from tidelog.cli.run.loading import load_job
from tidelog.cli.run.metrics_options import MetricsOptions, metrics_options
from tidelog.cli.run.origin_options import StartOptions, start_options
from tidelog.cli.run.reports import Ending, JsonLines, PlainLines, Quiet, Reporter
from tidelog.cli.run.running import EXIT_INTERRUPTED, exit_code, run_job
from tidelog.cli.store.options import defect, log_store_option, option
from tidelog.cli.values import duration
from tidelog.effects import Effects
from tidelog.errors import TidelogError
from tidelog.runtime.arguments import JobArguments
from tidelog.runtime.malloc import return_freed_memory
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.status.status import JobStatus
from tidelog.settings.resolve import Resolved
from tidelog.storage.access import StoreAccess

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
    arguments = JobArguments(input, output, include, follow)
    reporter = _reporter(as_json=as_json, quiet=quiet, interval_s=report_interval)

    # Here and not in the runner: the process is ours alone, and has no threads yet.
    return_freed_memory()

    def make_runner(effects: Effects) -> JobRunner:
        settings = config().config()
        access = StoreAccess(endpoint, settings.encryption_key)
        built = load_job(job, arguments)
        opened = access.open(store, effects, policy=settings.retry, log_url=log_store)
        chosen = start.restore_from(opened, effects, access)
        return JobRunner(
            built, opened, settings, effects, restore_slot=start.slot, restore_from=chosen
        )

    _report(_ending(job, _run(make_runner, reporter, metrics)), reporter, debug=debug)


def _reporter(*, as_json: bool, quiet: bool, interval_s: float | None) -> Reporter:
    if as_json:
        return JsonLines(interval_s or 1.0)
    if quiet:
        return Quiet()
    if sys.stderr.isatty():
        from tidelog.cli.run.live import LiveView  # noqa: PLC0415  # rich costs start-up time

        return LiveView()
    return PlainLines(interval_s or 5.0)


def _report(ending: Ending, reporter: Reporter, *, debug: bool) -> NoReturn:
    reporter.end(ending)
    if debug and ending.error is not None:
        print_traceback(ending.error)
    sys.exit(ending.exit_code)


def _ending(name: str, run: Coroutine[Any, Any, Ending]) -> Ending:
    """Run the job; every error is in the ending."""
    nothing = JobStatus(name, "starting", 0.0, None)
    error: TidelogError
    try:
        return asyncio.run(run)
    except BrokenPipeError:
        raise  # The reader of our reports has enough; click ends quietly.
    except KeyboardInterrupt:
        return Ending("interrupted", EXIT_INTERRUPTED, nothing, None, 0.0)
    except TidelogError as failure:
        error = failure
    except Exception as cause:
        error = defect(cause)
    return Ending("failed", exit_code("failed", error), nothing, None, 0.0, error)


async def _run(
    make_runner: Callable[[Effects], JobRunner], reporter: Reporter, metrics: MetricsOptions
) -> Ending:
    effects = Effects()
    with closing(effects.offload), metrics.listen() as listen:
        runner = make_runner(effects)
        try:
            return await run_job(runner, reporter, listen)
        finally:
            await runner.store.close()
            if runner.restore_from is not None and runner.restore_from.store is not None:
                await runner.restore_from.store.close()
