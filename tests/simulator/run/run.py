"""One run: a seed and a scenario in, an outcome out.

Invariant: a run reads nothing but its seed and scenario and writes nothing but files below its
own directory, so it can be repeated anywhere.
"""

import asyncio
import gc
import logging
import shutil
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.simulator.checks.restoring import check_restores
from tests.simulator.checks.violation import Property, Violation
from tests.simulator.machine.loop import EndlessError, StandstillError, VirtualLoop, run_virtual
from tests.simulator.run.branching import BranchingWorld
from tests.simulator.run.scenario import Scenario
from tests.simulator.run.trace import Trace
from tests.simulator.run.world import World


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
        with _undisturbed():
            return _outcome(seed, scenario, below, listener)
    finally:
        shutil.rmtree(below, ignore_errors=True)


def _outcome(
    seed: int, scenario: Scenario, directory: Path, listener: Callable[[str], None] | None
) -> Outcome:
    order = Random(f"{scenario.name}/{seed}/order")
    loop = VirtualLoop(order if order.random() < 0.5 else None)
    trace = Trace(loop.time, listener)
    kind = BranchingWorld if scenario.forks else World
    world = kind(seed, scenario, directory, trace, loop)
    _run(world, loop)
    if world.checker.violation is None:
        _restore_all(world)
    return Outcome(
        seed=seed,
        scenario=scenario.name,
        plan=f"parallelism {world.plan.parallelism}; {world.plan.about}",
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
