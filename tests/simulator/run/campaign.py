"""Runs: a seed and a scenario in, an outcome out; and many of them, by turns through scenarios.

Invariants: a run reads nothing but its seed and scenario and writes nothing but files below its
own directory, so it can be repeated anywhere: in whichever process, and by `replay`.
"""

import asyncio
import gc
import logging
import multiprocessing
import shutil
import signal
import tempfile
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing import resource_tracker
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.simulator.checks.restoring import check_restores
from tests.simulator.checks.violation import Property, Violation
from tests.simulator.machine.loop import EndlessError, StandstillError, VirtualLoop, run_virtual
from tests.simulator.machine.process import small_files
from tests.simulator.run.branching import BranchingWorld
from tests.simulator.run.nights import NightlyWorld
from tests.simulator.run.scenario import Scenario
from tests.simulator.run.trace import Trace
from tests.simulator.run.world import World

_MEMORY_DISK: Final = Path("/dev/shm")
_AHEAD: Final = 32
"""Runs per process that may be finished while an earlier one is not."""

Run = tuple[int, Scenario]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did and what it broke."""

    seed: int
    scenario: str
    violation: Violation | None
    plan: str = "unknown"
    digest: str = ""
    """Equal for equal traces."""
    events: int = 0
    requests: int = 0
    checkpoints: int = 0
    incarnations: int = 0
    virtual_s: float = 0.0
    last_events: tuple[str, ...] = ()


def run_seed(
    seed: int, scenario: Scenario, directory: Path, listener: Callable[[str], None] | None = None
) -> Outcome:
    """Run one seed in a folder below `directory`; `listener` gets every event of its trace."""
    below = directory / f"{scenario.name}-{seed}"
    try:
        with _undisturbed(), small_files():
            return _outcome(seed, scenario, below, listener)
    finally:
        shutil.rmtree(below, ignore_errors=True)


def _outcome(
    seed: int, scenario: Scenario, directory: Path, listener: Callable[[str], None] | None
) -> Outcome:
    order = Random(f"{scenario.name}/{seed}/order")
    loop = VirtualLoop(order if order.random() < 0.5 else None)
    trace = Trace(loop.time, listener)
    kind = BranchingWorld if scenario.clones else World
    if scenario.nights:
        kind = NightlyWorld
    world = kind(seed, scenario, directory, trace, loop)
    _run(world, loop)
    if world.checker.violation is None:
        _restore_all(world)
    return Outcome(
        seed=seed,
        scenario=scenario.name,
        plan=f"parallelism {world.plan.parallelism}; {world.operators}",
        digest=trace.digest,
        events=trace.events,
        requests=world.network.requests,
        checkpoints=sum(len(checker.completed) for checker in world.referees),
        incarnations=world.incarnations,
        virtual_s=loop.time(),
        violation=world.checker.violation,
        last_events=tuple(trace.last),
    )


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Without the collector of cycles, which runs at moments that no seed decides, and would visit
    in vain what is alive; and without the log: what simulated jobs say is no news of this process.
    """
    logger, collects = logging.getLogger("tidelog"), gc.isenabled()
    level = logger.level
    gc.disable()
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
        if collects:
            gc.enable()


def _run(world: World, loop: VirtualLoop) -> None:
    defects: list[str] = []

    def note(_: object, context: dict[str, Any]) -> None:
        # What escaped a callback; that of a forgotten task comes late or never.
        if "handle" in context:
            defects.append("".join(traceback.format_exception(context["exception"])))

    loop.set_exception_handler(note)
    asyncio.set_event_loop(loop)
    try:
        run_virtual(world.run(), loop)
    except (StandstillError, EndlessError) as error:
        world.checker.blame(Property.PROGRESS, f"{error}")
    except Exception:
        world.checker.blame(Property.NO_DEFECT, traceback.format_exc())
    finally:
        asyncio.set_event_loop(None)
    if defects:
        world.checker.blame(Property.NO_DEFECT, defects[0])


def _restore_all(world: World) -> None:
    for checker in world.referees:
        found = run_virtual(
            check_restores(checker.completed, checker.barriers, world.directory), VirtualLoop()
        )
        if found is not None:
            world.checker.blame(found.property, found.detail)


@dataclass(frozen=True, slots=True)
class Campaign:
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
    """Do the runs; each outcome as soon as it and all before it are there.

    Ctrl-C is a KeyboardInterrupt after the next of them: one in the middle of the pool's own code
    can leave a lock of it taken, for which its end then waits for ever.
    """
    left, begun = iter(runs), deque[tuple[Run, Future[Outcome]]]()
    pool, interrupted = _pool(processes), list[int]()
    usual = signal.signal(signal.SIGINT, lambda number, _: interrupted.append(number))
    try:
        while True:
            if interrupted:
                raise KeyboardInterrupt
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
        signal.signal(signal.SIGINT, usual)


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
