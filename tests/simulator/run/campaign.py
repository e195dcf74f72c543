"""Many runs: seeds take turns through the scenarios.

Invariant: a run of a campaign is the run that its seed and scenario alone give, in whichever
process; `replay` is the command that repeats it.
"""

import multiprocessing
import signal
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import islice
from multiprocessing import resource_tracker
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
    left, begun = iter(runs), deque[tuple[Run, Future[Outcome]]]()
    pool = _pool(processes)
    try:
        while True:
            for run in islice(left, _AHEAD * processes - len(begun)):
                begun.append((run, _begin(pool, run, directory)))
            if not begun:
                return
            run, future = begun.popleft()
            try:
                yield future.result()
            except BrokenProcessPool:
                # Which of the runs ended its process is not known: this one has one of its own.
                pool.shutdown(cancel_futures=True)
                yield _alone(run, directory)
                pool = _pool(processes)
                begun = deque((run, _begin(pool, run, directory)) for run, _ in begun)
    finally:
        pool.shutdown(cancel_futures=True)


def _alone(run: Run, directory: Path) -> Outcome:
    seed, scenario = run
    try:
        with _pool(1) as pool:
            return _begin(pool, run, directory).result()
    except BrokenProcessPool:
        died = Violation(Property.NO_DEFECT, "the process of the run died")
        return Outcome(seed, scenario.name, died)


def _pool(processes: int) -> ProcessPoolExecutor:
    # Spawned, not forked: RocksDB's threads do not survive a fork.
    return ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"))


def _begin(pool: ProcessPoolExecutor, run: Run, directory: Path) -> "Future[Outcome]":
    """Begin a run in a process that never hears of Ctrl-C, which reaches the whole group: the
    process that deals the runs ends the others.
    """
    resource_tracker.ensure_running()  # The first start would do it, and unblock the signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(run_seed, *run, directory)
    except BrokenProcessPool as error:
        failed: Future[Outcome] = Future()
        failed.set_exception(error)
        return failed
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
