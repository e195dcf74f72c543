"""An incarnation of a job: the parts of one start, restored, connected and ready to run.

Invariant: whatever ends it, nothing that was started is left running.
"""

import asyncio
import contextlib
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any

import msgspec

from tidelog.checkpoint.coordinator import Coordinator
from tidelog.checkpoint.garbage_collector import Collector
from tidelog.errors import TidelogError
from tidelog.events import Event
from tidelog.ids import CheckpointId, Slot
from tidelog.runtime.checkpoints.driver import CheckpointDriver, ManifestOperators, predecessors
from tidelog.runtime.checkpoints.requests import Reports, Savepoints
from tidelog.runtime.in_flight.carrier import in_flight_buffers
from tidelog.runtime.restore.plan import RestorePlan
from tidelog.runtime.subtasks.build import TaskBuilder
from tidelog.runtime.subtasks.start import JobStart
from tidelog.runtime.subtasks.state import SubtaskStates
from tidelog.runtime.subtasks.wiring import aligned_edges
from tidelog.runtime.tasks.task import Task

logger = logging.getLogger(__name__)

Loop = Coroutine[Any, Any, None]


class Incarnation(msgspec.Struct, frozen=True):
    """What runs of one start."""

    start: JobStart
    states: SubtaskStates
    tasks: Sequence[Task]
    """In the order of the job."""
    collector: Collector
    driver: CheckpointDriver

    @property
    def plan(self) -> RestorePlan:
        return self.start.plan

    @property
    def aligned_edges(self) -> tuple[str, ...]:
        """Edges on which barriers never overtake, though they do on others."""
        return aligned_edges(self.plan.vertices) if self.start.config.overtakes else ()

    @property
    def dropped_buffers(self) -> int:
        """Buffers in flight that the restore has dropped, as the configuration says."""
        restored = self.plan.checkpoint if self.start.config.drop_in_flight else None
        return in_flight_buffers(restored) if restored is not None else 0

    def live_objects(self) -> set[str]:
        """Stored objects that running subtasks refer to."""
        subtasks = self.states.subtasks
        parts = [task.parts for task in self.tasks if not subtasks[task.id].released]
        held = [p.snapshotter.objects() | p.canonical.objects() for p in parts]
        held += [p.carrier.objects() for p in parts if p.carrier is not None]
        return set().union(*held)

    async def live(self, task: Task) -> None:
        """A task's whole life: its loop with its materializer, then the release of its state."""
        materializer = self.states.subtasks[task.id].materializer
        if materializer is None:
            await task.run()
        else:
            await run_until_done([task.run()], [materializer.run()])
        await self.states.release(task.id)


async def incarnate(
    start: JobStart, states: SubtaskStates, prove_newest: Callable[[], Awaitable[None]]
) -> Incarnation:
    """Restore all subtasks, let sinks recover, and build the tasks; close `states` also when this
    fails.

    `prove_newest` raises FencedError when a newer generation has started. It is asked before
    anything outside of the store is touched: user functions, and what sinks have staged.
    """
    reports = Reports(_coordinator(start), start.effects.clock)
    collector = _collector(start)
    await states.restore()
    await prove_newest()
    await states.migrate()
    tasks = await TaskBuilder(start, states, reports).build()
    driver = _driver(start, reports, collector, tasks)
    return Incarnation(start, states, tasks, collector, driver)


def _coordinator(start: JobStart) -> Coordinator[Any, Any]:
    plan, schedule = start.plan, start.config.checkpoint
    next_id = start.history.next_checkpoint_id
    if plan.checkpoint is not None:
        next_id = CheckpointId(max(next_id, plan.checkpoint.checkpoint_id + 1))
    begun = start.effects.clock.monotonic() - start.resources.phase() * schedule.interval
    return Coordinator(predecessors(plan.vertices), schedule, next_id, begun, plan.finished)


def _collector(start: JobStart) -> Collector:
    collector = Collector(
        start.objects,
        start.slots,
        start.ledger,
        start.config.retain,
        spared=None if start.history.complete else start.author.generation,
        claimed=start.plan.resumption.claimed,
        unreadable=frozenset(start.history.damaged),
    )
    for checkpoint in start.history.checkpoints:
        collector.retain(checkpoint)
    return collector


def _driver(
    start: JobStart, reports: Reports, collector: Collector, tasks: Sequence[Task]
) -> CheckpointDriver:
    config, plan = start.config, start.plan
    savepoints = Savepoints()
    savepoints.known(start.history.checkpoints)
    return CheckpointDriver(
        reports=reports,
        effects=start.effects,
        slots=start.slots,
        author=start.author,
        job=start.job.name,
        next_slot=Slot(start.author.generation + 1),
        collector=collector,
        cadence=start.cadence,
        operators=ManifestOperators(
            plan.vertices, start.registries, config.key_groups, dict(plan.finished)
        ),
        savepoints=savepoints,
        tasks=tasks,
        configured_order=config.unaligned.order if config.overtakes else "aligned",
        previous=None if plan.resumption.origin is not None else plan.checkpoint,
    )


async def run_until_done(main: Iterable[Loop], services: Iterable[Loop]) -> None:
    """Run all until the main ones ended; raises the first error of any."""
    # Lists, not sets: in a simulation equal runs take equal steps.
    needed = [asyncio.ensure_future(loop) for loop in main]
    running = needed + [asyncio.ensure_future(loop) for loop in services]
    try:
        while not all(task.done() for task in needed):
            waiting = [task for task in running if not task.done()]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in running:
                if task.done():
                    task.result()
    finally:
        for task in running:
            task.cancel()
        first = sys.exception()
        with contextlib.suppress(asyncio.CancelledError, TidelogError):
            for ended in await asyncio.gather(*running, return_exceptions=True):
                if isinstance(ended, Exception) and ended is not first:
                    Event.FURTHER_FAILURE.log(logger, error=ended)
