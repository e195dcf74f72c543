"""Runs of a campaign in several processes at a time.

Invariants: outcomes come in the order of the runs, whatever the number of processes and whoever
is first; a run whose process dies has an outcome that says so.
"""

import multiprocessing
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Final

from tests.simulator.checks.violation import Property, Violation
from tests.simulator.run.run import Outcome, run_below
from tests.simulator.run.scenario import Scenario

_AHEAD: Final = 32
"""Runs per process that may be finished while an earlier one is not."""

Run = tuple[int, Scenario]


def run_on_workers(runs: Iterable[Run], processes: int, directory: Path) -> Iterator[Outcome]:
    """Do the runs; each outcome as soon as it and all before it are there."""
    # Spawned, not forked: RocksDB's threads do not survive a fork.
    workers = [_Worker(directory) for _ in range(processes)]
    try:
        yield from _dealt(iter(runs), workers)
    finally:
        for worker in workers:
            worker.end()


def _dealt(runs: Iterator[Run], workers: list["_Worker"]) -> Iterator[Outcome]:
    """Give each free process the next run, and put the outcomes in order."""
    begun = yielded = 0
    finished: dict[int, Outcome] = {}
    exhausted = False
    while True:
        for worker in workers:
            if worker.run is None and not exhausted and begun - yielded < _AHEAD * len(workers):
                run = next(runs, None)
                exhausted = run is None
                if run is not None:
                    worker.begin(begun, run)
                    begun += 1
        busy = {worker.connection: worker for worker in workers if worker.run is not None}
        if not busy and not finished:
            return
        for connection in wait(list(busy)) if busy else ():
            worker = busy[connection]  # type: ignore[index]
            finished[worker.number] = worker.outcome()
        while yielded in finished:
            yield finished.pop(yielded)
            yielded += 1


@dataclass(slots=True, eq=False)
class _Worker:
    """A process that does one run at a time."""

    directory: Path
    run: Run | None = None
    number: int = -1
    connection: Connection = field(init=False)
    _process: SpawnProcess = field(init=False)

    def __post_init__(self) -> None:
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, far_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(far_end, self.directory), daemon=True)
        with _deaf_to_ctrl_c():
            self._process.start()
        far_end.close()

    def begin(self, number: int, run: Run) -> None:
        self.number, self.run = number, run
        self.connection.send(run)

    def outcome(self) -> Outcome:
        """What became of the run; to be called when the connection has something to read."""
        assert self.run is not None
        run, self.run = self.run, None
        try:
            outcome: Outcome = self.connection.recv()
        except (EOFError, OSError):
            self.end()
            detail = f"the process of the run died with exit code {self._process.exitcode}"
            self._start()
            return Outcome.of_nothing(*run, Violation(Property.NO_DEFECT, detail))
        return outcome

    def end(self) -> None:
        self.connection.close()
        self._process.terminate()
        self._process.join()


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Processes started within never hear of Ctrl-C, which reaches the whole group: the one that
    deals the runs ends the others.
    """
    resource_tracker.ensure_running()  # The first start would do it, and unblock the signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _serve(connection: Connection, directory: Path) -> None:
    """The life of a worker: runs in, outcomes out, until nobody asks any more."""
    while True:
        try:
            seed, scenario = connection.recv()
            connection.send(run_below(seed, scenario, directory))
        except (EOFError, OSError):
            return
