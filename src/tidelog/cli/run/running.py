"""Runs a job in this process: signals, reports, and the way it ended.

Invariant: whatever happens, the reporter's `end` is called once and says what to do next.
"""

import asyncio
import logging
import os
import signal
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from queue import SimpleQueue
from typing import Final, NamedTuple

from msgspec.structs import replace

from tidelog.cli.exit_codes import EXIT_INTERRUPTED, EXIT_OK, EXIT_PROBLEM, exit_code_of
from tidelog.cli.logs import in_form
from tidelog.cli.run.reports import Ending, Outcome, ReadSpeed, Reporter
from tidelog.effects import daemon_thread, hold_thread
from tidelog.errors import FencedError, NoMoreWorkersError, StorageError, TidelogError
from tidelog.events import Event
from tidelog.interrupt import process_is_claimed
from tidelog.runtime.control.server import control_until
from tidelog.runtime.runner import JobResult, JobRunner
from tidelog.runtime.status.observe import status_of
from tidelog.runtime.status.status import JobStatus

_LONGEST_PAUSE_S: Final = 60.0

logger = logging.getLogger(__name__)

STOP_LIMIT_S: Final = 8.0
"""A job that is stopped by a signal has ended then, whatever it waits for."""
_NOT_ENDED: Final = (
    f"the job has not ended {STOP_LIMIT_S:g} s after the signal: the process ends as it is, which "
    "loses nothing"
)
_STANDARD_ERROR: Final = 2
_LOOK_S: Final = 1.0
"""So often, at least, somebody who serves the job's figures gets them."""


_NOW_S: Final = 3.0
"""Over so long the speed of now is measured."""


def _signals() -> list[signal.Signals]:
    """The signals that stop a job in order. A closed terminal sends SIGHUP; a job that `nohup` runs
    ignores it.
    """
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hangs_up else [])]


class _Reading(NamedTuple):
    """Records that one process had read at a moment."""

    at_s: float
    records: int


class _Readings:
    """The readings of one process."""

    def __init__(self, first: _Reading) -> None:
        self._first = first
        self._recent = deque([first])
        """The readings of the last seconds, and the last one before them."""

    def add(self, reading: _Reading) -> None:
        if reading.at_s > self._recent[-1].at_s:  # otherwise a worker has said nothing since
            self._recent.append(reading)
            while len(self._recent) > 2 and self._recent[1].at_s <= reading.at_s - _NOW_S:
                self._recent.popleft()

    @property
    def speed(self) -> ReadSpeed:
        last = self._recent[-1]
        return ReadSpeed(_between(self._recent[0], last), _between(self._first, last))


class Speedometer:
    """Speed from successive looks at a running job: the sum of what its processes read."""

    def __init__(self) -> None:
        self._processes: dict[int, _Readings] = {}

    def read(self, status: JobStatus) -> ReadSpeed:
        """The speed of the last seconds, and since the first look."""
        if status.phase != "running":
            return ReadSpeed()
        readings = {} if status.workers else {-1: _Reading(status.at_s, status.records_read)}
        for worker in status.workers:
            # Its figures are of the moment at which it sent them, unless it hangs.
            silent_s = worker.silent_s if worker.silent_s < _NOW_S else 0.0
            readings[worker.worker] = _Reading(status.at_s - silent_s, worker.records_in)
        for process, reading in readings.items():
            self._processes.setdefault(process, _Readings(reading)).add(reading)
        speeds = [readings.speed for readings in self._processes.values()]
        return ReadSpeed(sum(s.now for s in speeds), sum(s.mean for s in speeds))


def _between(before: _Reading, after: _Reading) -> float:
    elapsed = after.at_s - before.at_s
    return (after.records - before.records) / elapsed if elapsed > 0 else 0.0


async def run_with_restarts(
    make: Callable[[bool], JobRunner], reporter: Reporter, listen: Callable[[JobStatus], None]
) -> Ending:
    """As `run_job`; a job with workers that fails is started again, as its configuration says.

    `make` is told whether a start goes on from checkpoints of those before: what the user has
    chosen to restore holds for the first checkpoint only.
    """
    failed, goes_on = 0, False
    while True:
        runner = make(goes_on)
        result = await run_job(runner, reporter, listen)
        if runner.config.workers == 1 or result.exit_code != EXIT_PROBLEM:
            return result
        completed = result.status.checkpoints.completed > 0
        failed, goes_on = 1 if completed else failed + 1, goes_on or completed
        if failed > runner.config.restarts or isinstance(result.error, NoMoreWorkersError):
            return result
        pause = min(_LONGEST_PAUSE_S, 2.0 ** (failed - 1))
        assert result.error is not None
        pausing = asyncio.ensure_future(runner.effects.clock.sleep(pause))
        _on_signals(pausing.cancel)
        Event.JOB_RESTARTS.log(logger, error=result.error, seconds=pause)
        reporter.notice(f"{result.error} The job starts again in {pause:.0f} s.")
        waiting = asyncio.ensure_future(_watch(runner, Reporter(), listen))
        try:
            await pausing
        except asyncio.CancelledError:
            return replace(result, outcome="interrupted", exit_code=EXIT_INTERRUPTED, error=None)
        finally:
            waiting.cancel()


async def run_job(
    runner: JobRunner, reporter: Reporter, listen: Callable[[JobStatus], None]
) -> Ending:
    """Run to the end, a signal or an error; errors but those of tidelog pass through.

    `listen` gets every status taken.
    """
    started = runner.effects.clock.monotonic()
    up = asyncio.Event()
    running = asyncio.ensure_future(runner.run(up.set))
    controlling = asyncio.ensure_future(_control(runner, up, running, reporter))
    watching = asyncio.ensure_future(_watch(runner, reporter, listen))

    def stop() -> None:
        reporter.stopping()
        incarnation = runner.incarnation
        # A job whose last savepoint is stored ends by itself, in order.
        if incarnation is None or incarnation.driver.savepoints.stopped is None:
            running.cancel()

    _on_signals(stop)
    outcome: Outcome
    error = None
    try:
        await asyncio.wait([running, watching], return_when=asyncio.FIRST_COMPLETED)
        if watching.done():  # it could not report: nobody would see what goes on
            running.cancel()
            await asyncio.wait([running])
            watching.result()
        outcome = _outcome(await running)
    except asyncio.CancelledError:
        outcome = "interrupted"
    except TidelogError as failure:
        error = failure
        outcome = "fenced" if isinstance(failure, FencedError) else "failed"
    finally:
        watching.cancel()
        if not up.is_set():
            controlling.cancel()
        await asyncio.wait([controlling])
    incarnation = runner.incarnation
    restored = incarnation.plan.checkpoint if incarnation is not None else None
    from_same_store = runner.restore_from is not None and runner.restore_from.store is None
    result = Ending(
        outcome=outcome,
        exit_code=_exit_code(outcome, error),
        status=status_of(runner),
        restored_checkpoint=restored.slot if restored is not None else None,
        seconds=runner.effects.clock.monotonic() - started,
        error=error,
        chosen_checkpoint=runner.restore_checkpoint is not None or from_same_store,
        savepoint=incarnation.driver.savepoints.stopped if incarnation is not None else None,
        looked_at=incarnation.driver.looked_at if incarnation is not None else None,
    )
    listen(result.status)
    return result


def _exit_code(outcome: Outcome, error: TidelogError | None) -> int:
    if error is not None:
        return exit_code_of(error)
    return EXIT_INTERRUPTED if outcome == "interrupted" else EXIT_OK


async def _control(
    runner: JobRunner, up: asyncio.Event, running: "asyncio.Task[JobResult]", reporter: Reporter
) -> None:
    """Let `tidelog savepoint` and `tidelog stop` ask the job, from its start to its end."""

    def unavailable(error: StorageError) -> None:
        reporter.notice(f"`tidelog savepoint` and `tidelog stop` will not find this job: {error}")

    await up.wait()
    await control_until(running, runner, unavailable)


def _outcome(result: JobResult) -> Outcome:
    if result.stopped is not None:
        return "stopped"
    return "already-complete" if result.already_complete else "finished"


async def _watch(
    runner: JobRunner, reporter: Reporter, listen: Callable[[JobStatus], None]
) -> None:
    speedometer, clock = Speedometer(), runner.effects.clock
    due_s = clock.monotonic() + reporter.poll_s
    listen(status_of(runner))
    while True:
        await clock.sleep(min(_LOOK_S, max(0.0, due_s - clock.monotonic())))
        status = status_of(runner)
        listen(status)
        if status.at_s >= due_s:
            due_s = status.at_s + reporter.poll_s
            reporter.observe(status, speedometer.read(status))


@cache
def _signalled() -> "SimpleQueue[int]":
    """For the first signal: some seconds later it ends the process, if nothing else has.

    The thread is there before: a handler that comes while Python starts one may start none.
    """
    signals: SimpleQueue[int] = SimpleQueue()
    line = f"{in_form(_NOT_ENDED, logging.WARNING)}\n".encode()

    def end_in_time() -> None:
        signals.get()
        hold_thread(STOP_LIMIT_S)
        with suppress(OSError):  # nobody may read it
            os.set_blocking(_STANDARD_ERROR, False)
            os.write(_STANDARD_ERROR, line)
        os._exit(EXIT_INTERRUPTED)

    daemon_thread(end_in_time, "tidelog-stop")
    return signals


def _on_signals(stop: Callable[[], object]) -> None:
    """Stop at the first signal. A second one ends the process at once, and so does the time when
    nothing else has; that loses nothing.
    """
    loop, numbers = asyncio.get_running_loop(), _signals()
    # The first process of a container gets no default actions of signals.
    first = os.getpid() == 1
    second = (lambda number, _: os._exit(128 + number)) if first else signal.SIG_DFL

    signals = _signalled() if process_is_claimed() else None

    def once(*_: object) -> None:
        if signals is not None:
            signals.put(1)
        for number in numbers:
            signal.signal(number, second)

    def stop_once() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)
        once()
        stop()

    for number in numbers:
        loop.add_signal_handler(number, stop_once)
        # At once, also while a call of a user's function holds the event loop.
        signal.signal(number, once)
