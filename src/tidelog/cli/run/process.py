"""One run of a job in this process: from the options of the command to its exit code.

Invariant: every error is in the ending that is reported.
"""

import asyncio
import gc
import sys
from collections.abc import Callable
from contextlib import closing
from typing import NoReturn

import msgspec

from tidelog.cli.output import defect, print_traceback
from tidelog.cli.run.loading import load_job
from tidelog.cli.run.metrics_options import MetricsOptions
from tidelog.cli.run.origin_options import StartOptions
from tidelog.cli.run.own_process import allow_many_files, return_freed_memory
from tidelog.cli.run.reports import Ending, JsonLines, PlainLines, Quiet, Reporter
from tidelog.cli.run.running import EXIT_INTERRUPTED, exit_code, run_job
from tidelog.effects import Effects
from tidelog.errors import TidelogError
from tidelog.runtime.arguments import JobArguments
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.status.status import JobStatus
from tidelog.settings.resolve import Resolved
from tidelog.storage.access import StoreAccess


class Start(msgspec.Struct, frozen=True):
    """What is to run, as the command's options say."""

    job: str
    """An example, or module:attribute."""
    arguments: JobArguments
    store: str
    log_store: str | None
    endpoint: str | None
    config: Callable[[], Resolved]
    origin: StartOptions

    def run(self, reporter: Reporter, metrics: MetricsOptions) -> Ending:
        """Run the job to its end; every error is in the ending."""
        # Here and not in the runner: the process is ours alone, and has no threads yet.
        return_freed_memory()
        gc.freeze()  # what was imported stays
        allow_many_files()
        nothing = JobStatus(self.job, "starting", 0.0, None)
        error: TidelogError
        try:
            return asyncio.run(self._run(reporter, metrics))
        except BrokenPipeError:
            raise  # The reader of our reports has enough; click ends quietly.
        except KeyboardInterrupt:
            return Ending("interrupted", EXIT_INTERRUPTED, nothing, None, 0.0)
        except TidelogError as failure:
            error = failure
        except Exception as cause:
            error = defect(cause)
        return Ending("failed", exit_code("failed", error), nothing, None, 0.0, error)

    async def _run(self, reporter: Reporter, metrics: MetricsOptions) -> Ending:
        effects = Effects()
        with closing(effects.offload), metrics.listen() as listen:
            runner = self._runner(effects)
            try:
                return await run_job(runner, reporter, listen)
            finally:
                await runner.store.close()
                if runner.restore_from is not None and runner.restore_from.store is not None:
                    await runner.restore_from.store.close()

    def _runner(self, effects: Effects) -> JobRunner:
        settings = self.config().config()
        access = StoreAccess(self.endpoint, settings.encryption_key)
        job = load_job(self.job, self.arguments)
        store = access.open(self.store, effects, policy=settings.retry, log_url=self.log_store)
        origin = self.origin.restore_from(store, effects, access)
        return JobRunner(
            job, store, settings, effects, restore_slot=self.origin.slot, restore_from=origin
        )


def reporter_for(*, as_json: bool, quiet: bool, interval_s: float | None) -> Reporter:
    """What tells of the run, as its options say."""
    if as_json:
        return JsonLines(interval_s or 1.0)
    if quiet:
        return Quiet()
    if sys.stderr.isatty():
        from tidelog.cli.run.live import LiveView  # noqa: PLC0415  # rich costs start-up time

        return LiveView()
    return PlainLines(interval_s or 5.0)


def report(ending: Ending, reporter: Reporter, *, debug: bool) -> NoReturn:
    """Tell how the run ended, and end the process."""
    reporter.end(ending)
    if debug and ending.error is not None:
        print_traceback(ending.error)
    sys.exit(ending.exit_code)
