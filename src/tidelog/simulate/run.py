"""One run: a seed and a scenario in, an outcome out.

Invariant: a run reads nothing but its seed and scenario and writes nothing but files below its
own directory, so it can be repeated anywhere.
"""

import asyncio
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tidelog.simulate.loop import (
    EndlessError,
    StandstillError,
    VirtualLoop,
    run_virtual,
    without_collector,
)
from tidelog.simulate.restoring import check_restores
from tidelog.simulate.scenario import Scenario
from tidelog.simulate.trace import Trace
from tidelog.simulate.violation import Property, Violation
from tidelog.simulate.world import World


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did and what it broke."""

    seed: int
    scenario: str
    plan: str
    digest: str
    """Equal for equal traces."""
    events: int
    requests: int
    checkpoints: int
    incarnations: int
    virtual_s: float
    violation: Violation | None
    last_events: tuple[str, ...]


def run_seed(
    seed: int,
    scenario: Scenario,
    directory: Path,
    listener: Callable[[str], None] | None = None,
) -> Outcome:
    """Run one seed; `listener` gets every event of its trace."""
    trace = Trace(listener)
    shuffled = Random(f"{scenario.name}/{seed}/order")
    order = shuffled if shuffled.random() < scenario.shuffle else None
    loop = VirtualLoop(order)
    world = World(seed, scenario, directory, trace, loop)
    with without_collector():
        _run(world, loop)
        if world.referee.violation is None:
            _restore_all(world)
    return Outcome(
        seed=seed,
        scenario=scenario.name,
        plan=world.plan.describe(),
        digest=trace.digest,
        events=trace.events,
        requests=world.network.requests,
        checkpoints=len(world.referee.completed),
        incarnations=world.incarnations,
        virtual_s=loop.time(),
        violation=world.referee.violation,
        last_events=tuple(trace.last),
    )


def _run(world: World, loop: VirtualLoop) -> None:
    defects: list[str] = []
    loop.set_exception_handler(lambda _, context: _note(defects, context))
    asyncio.set_event_loop(loop)
    try:
        run_virtual(world.run(), loop)
    except StandstillError as error:
        world.referee.blame(Property.PROGRESS, f"{error}")
    except EndlessError as error:
        world.referee.blame(Property.PROGRESS, f"{error}")
    except Exception:
        world.referee.blame(Property.NO_DEFECT, traceback.format_exc())
    finally:
        asyncio.set_event_loop(None)
    if defects:
        world.referee.blame(Property.NO_DEFECT, defects[0])


def _note(defects: list[str], context: dict[str, object]) -> None:
    """An exception that escaped a callback; those of forgotten tasks are told late or never."""
    error = context.get("exception")
    if "handle" in context and isinstance(error, BaseException):
        defects.append("".join(traceback.format_exception(error)))


def _restore_all(world: World) -> None:
    loop = VirtualLoop()
    found = run_virtual(
        check_restores(world.referee.completed, world.barriers, world.directory), loop
    )
    if found is not None:
        world.referee.blame(found.property, found.detail)
