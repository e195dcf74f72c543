"""One run of a job in this process: its stores and workers, malloc and open files.

Invariants: every error is in the ending that is reported; malloc's settings in the environment
win, and where there is no glibc nothing happens.
"""

import asyncio
import ctypes
import gc
import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

from tidelog.cli.effects import command_effects
from tidelog.cli.exit_codes import EXIT_INTERRUPTED, EXIT_PROBLEM, exit_code_of
from tidelog.cli.logs import in_documents
from tidelog.cli.output import Output, defect, print_traceback
from tidelog.cli.run.definition import load_job
from tidelog.cli.run.options import MetricsOptions, RunOptions, StartOptions
from tidelog.cli.run.reports import Ending, JsonReports, PlainLines, Reporter, reports_never_wait
from tidelog.cli.run.running import run_with_restarts
from tidelog.credentials import records_shown
from tidelog.errors import TidelogError
from tidelog.ids import Slot
from tidelog.runtime.config import JobArguments, JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.status.status import JobStatus
from tidelog.runtime.status.watchdog import watched_loop
from tidelog.settings import Resolved
from tidelog.storage.open import StoreAccess

if TYPE_CHECKING:
    from tidelog.runtime.workers.processes import ForkedWorkers

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8

_MMAP_FROM: Final = 1 << 20
"""glibc raises its own threshold, from 128 KiB up to 32 MiB, whenever such a block is freed: then
blocks of the log and of tables lie between small objects, and what is freed stays with the process.
Buffers of records are smaller than this: the system would clear their pages each time.
"""
_FREE_ON_TOP: Final = 4 << 20
"""The heap shrinks when so much is free at its end; glibc would take 128 KiB."""
_ARENAS: Final = 2
"""Each arena keeps what was freed in it, and few threads seal, upload or compact at a time."""
_MALLOC: Final = {
    _M_ARENA_MAX: _ARENAS,
    _M_MMAP_THRESHOLD: _MMAP_FROM,
    _M_TRIM_THRESHOLD: _FREE_ON_TOP,
}
_ENVIRONMENT: Final = (
    "MALLOC_ARENA_MAX",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "GLIBC_TUNABLES",
)


def run_in_process(
    job: str,
    arguments: JobArguments,
    options: RunOptions,
    config: Callable[[], Resolved],
    start: StartOptions,
    metrics: MetricsOptions,
) -> NoReturn:
    """Run a job to its end, report how it ended, and end the process."""
    # Here and not in the runner: the process is ours alone, and has no threads yet.
    return_freed_memory()
    gc.freeze()  # what was imported stays
    _allow_many_files()
    resolved = config()
    with reports_never_wait(as_json=options.as_json):
        sys.exit(_reported(job, arguments, options, resolved, start, metrics))


def _reported(
    job: str,
    arguments: JobArguments,
    options: RunOptions,
    resolved: Resolved,
    start: StartOptions,
    metrics: MetricsOptions,
) -> int:
    """Run a job to its end and report how it ended; the exit code."""
    reporter = _reporter(options, resolved)
    nothing = JobStatus(job)
    error: TidelogError | None = None
    shown = True
    try:
        settings = resolved.config()
        loaded_job = load_job(job, arguments)
        stores, shown = _Stores(options, settings), settings.show_records
        with _workers(loaded_job, settings, start, stores) as processes:
            run = _run(loaded_job, settings, start, stores, processes, metrics, reporter)
            result = asyncio.run(run)
    except BrokenPipeError:
        raise  # The reader of our reports has enough; click ends quietly.
    except KeyboardInterrupt:
        result = Ending("interrupted", EXIT_INTERRUPTED, nothing, None, 0.0)
    except Exception as cause:
        error = cause if isinstance(cause, TidelogError) else defect(cause)
        result = Ending("failed", exit_code_of(error), nothing, None, 0.0, error)
    try:
        reporter.end(result)
    except TidelogError as unsaid:
        Output(as_json=True).error(result.error or unsaid)
        return result.exit_code or EXIT_PROBLEM
    if options.debug and result.error is not None:
        with records_shown(shown):
            print_traceback(result.error)
    return result.exit_code


class _Stores:
    """Opens the store of the job, in this process and in each worker."""

    def __init__(self, options: RunOptions, config: JobConfig) -> None:
        self.access = StoreAccess(options.endpoint, config.encryption_key, config.storage)
        self.open = partial(
            self.access.open, options.store, policy=config.retry, log_url=options.log_store
        )


@contextmanager
def _workers(
    job: Job, config: JobConfig, start: StartOptions, stores: _Stores
) -> Iterator["ForkedWorkers | None"]:
    """What starts the workers of the job; None for one that runs in this process."""
    if config.workers == 1:
        yield None
        return
    from tidelog.runtime.workers.processes import ForkedWorkers  # noqa: PLC0415  # only for these
    from tidelog.runtime.workers.worker import Work  # noqa: PLC0415

    other = start.origin.url if start.origin is not None else None
    origin = partial(stores.access.open, other) if other else None
    processes = ForkedWorkers(Work(job, config, stores.open, origin))
    try:
        yield processes
    finally:
        processes.close()


async def _run(
    job: Job,
    config: JobConfig,
    start: StartOptions,
    stores: _Stores,
    processes: "ForkedWorkers | None",
    metrics: MetricsOptions,
    reporter: Reporter,
) -> Ending:
    with command_effects() as effects, watched_loop(effects.clock), _metrics(metrics) as listen:
        store = stores.open(effects)
        origin = start.restore_from(store, effects, stores.access)
        checkpoint = None if start.checkpoint is None else Slot(start.checkpoint)
        workers = None
        if processes is not None:
            from tidelog.runtime.workers.parent import Workers  # noqa: PLC0415  # only for these

            workers = Workers(processes, effects)

        def runner(goes_on: bool) -> JobRunner:
            return JobRunner(
                job,
                store,
                replace(config, drop_in_flight=False) if goes_on else config,
                effects,
                restore_checkpoint=None if goes_on else checkpoint,
                restore_from=None if goes_on else origin,
                workers=workers,
            )

        try:
            return await run_with_restarts(runner, reporter, listen)
        finally:
            await store.close()
            if origin is not None and origin.store is not None:
                await origin.store.close()


def _metrics(metrics: MetricsOptions) -> AbstractContextManager[Callable[[JobStatus], None]]:
    """Serves metrics, if the user wants them, by a function for every status of the job."""
    if metrics.port is None:
        return nullcontext(lambda _: None)
    # Few runs want metrics, so few pay for the module.
    from tidelog.runtime.status.serving import serve_metrics  # noqa: PLC0415

    return serve_metrics(metrics.port, metrics.host)


def _reporter(options: RunOptions, resolved: Resolved) -> Reporter:
    if options.as_json:
        return JsonReports(options.report_interval or 1.0)
    if options.quiet:
        return Reporter()
    workers = next(
        setting.value for setting in resolved.effective if setting.declared.name == "workers"
    )
    # A panel that is redrawn erases what other processes print and log to its terminal.
    terminal = sys.stderr.isatty() and not in_documents()
    if terminal and workers == 1:
        from tidelog.cli.run.live import LiveView  # noqa: PLC0415  # rich costs start-up time

        return LiveView()
    interval_s = options.report_interval or (5.0 if terminal else 60.0)
    return PlainLines(interval_s, verbose=options.verbose)


def return_freed_memory() -> None:
    """Make malloc return large blocks to the system at once, where that can be set.

    Call it before any thread is started. docs/decisions/009-memory.md has the numbers.
    """
    if any(name in os.environ for name in _ENVIRONMENT):
        return
    with suppress(AttributeError, OSError, TypeError):
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018  # others have a mallopt that does nothing
        for setting, value in _MALLOC.items():
            library.mallopt(setting, value)


def _allow_many_files() -> None:
    """Raise the limit of open files as far as the system lets this process: tables need many."""
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
