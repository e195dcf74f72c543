"""Many runs: seeds take turns through the scenarios.

Invariant: a run of a campaign is the run that its seed and scenario alone give, in whichever
process; `replay` is the command that repeats it.
"""

import multiprocessing
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Final

from tests.simulator.checks.violation import Property, Violation
from tests.simulator.run.run import Outcome, run_seed
from tests.simulator.run.scenario import Scenario

_MEMORY_DISK: Final = Path("/dev/shm")
_AHEAD: Final = 32
"""Runs per process that may be finished while an earlier one is not."""

Run = tuple[int, Scenario]


@dataclass(frozen=True, slots=True)
class Campaign:
    """Which runs to do."""

    scenarios: Sequence[Scenario]
    first_seed: int
    seeds: int

    def __iter__(self) -> Iterator[Run]:
        for number in range(self.seeds):
            seed = self.first_seed + number
            yield seed, self.scenarios[seed % len(self.scenarios)]


def run_campaign(
    campaign: Campaign, listener: Callable[[str], None] | None = None, *, processes: int = 1
) -> Iterator[Outcome]:
    """Do the runs; outcomes come in order, each as soon as it is there.

    One process is this one, and `listener` gets the events of its runs.
    """
    disk = _MEMORY_DISK if _MEMORY_DISK.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="tidelog-simulate-", dir=disk) as directory:
        if processes > 1:
            yield from run_on_workers(campaign, processes, Path(directory))
            return
        for seed, scenario in campaign:
            yield run_seed(seed, scenario, Path(directory), listener)


def replay(outcome: Outcome) -> str:
    """The command that repeats a run and shows all of it."""
    return (
        f"python -m tests.simulator --scenario {outcome.scenario} --first-seed {outcome.seed} "
        "--seeds 1 --trace"
    )


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
            seed, scenario = run
            return Outcome(seed, scenario.name, Violation(Property.NO_DEFECT, detail))
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
            connection.send(run_seed(seed, scenario, directory))
        except (EOFError, OSError):
            return
