"""An incarnation of a job: the parts of one start, restored, connected and ready to run.

Invariant: whatever ends it, nothing that was started is left running.
"""

import asyncio
import contextlib
import logging
import math
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from tidelog.checkpoint.coordinator import Coordinator
from tidelog.checkpoint.garbage_collector import Collector
from tidelog.concurrency import together
from tidelog.errors import TidelogError
from tidelog.events import Event
from tidelog.ids import CheckpointId, SubtaskId
from tidelog.materialize.materializer import warn_of_lag
from tidelog.runtime.checkpoints.driver import CheckpointDriver
from tidelog.runtime.checkpoints.entries import predecessors
from tidelog.runtime.checkpoints.requests import DrivenTask, Reports
from tidelog.runtime.checkpoints.stored_objects import StoredObjects
from tidelog.runtime.in_flight.carrier import in_flight_buffers
from tidelog.runtime.restore.choose import RestorePlan
from tidelog.runtime.subtasks.build import TaskBuilder
from tidelog.runtime.subtasks.ends import source_ends
from tidelog.runtime.subtasks.start import JobStart
from tidelog.runtime.subtasks.state import SubtaskStates
from tidelog.runtime.subtasks.wiring import stays_aligned
from tidelog.runtime.tasks.splits import SourceSplits
from tidelog.runtime.tasks.task import Task
from tidelog.runtime.tasks.task_checkpoints import CheckpointListener

if TYPE_CHECKING:
    from tidelog.runtime.status.status import JobStatus

logger = logging.getLogger(__name__)

TICK_S: Final = 0.1
"""How often tasks learn that processing time passed."""

Loop = Coroutine[Any, Any, None]


class Incarnation(msgspec.Struct, frozen=True):
    """What runs of one start."""

    start: JobStart
    states: SubtaskStates
    tasks: Sequence[Any]
    """In the order of the job: `Task` of this process, `RemoteTask` of workers."""
    collector: Collector
    driver: CheckpointDriver
    subtasks: "Subtasks"

    @property
    def plan(self) -> RestorePlan:
        return self.start.plan

    @property
    def aligned_edges(self) -> tuple[str, ...]:
        """Edges on which barriers never overtake, though they do on others."""
        edges: list[str] = []
        for consumer in self.plan.vertices if self.start.config.overtakes else ():
            for producer, edge in consumer.inputs:
                if stays_aligned(producer, edge, consumer):
                    edges.append(f"{producer.id} -> {consumer.id}")
        return tuple(edges)

    @property
    def dropped_buffers(self) -> int:
        """Buffers in flight that the restore has dropped, as the configuration says."""
        restored = self.plan.checkpoint if self.start.config.drop_in_flight else None
        return in_flight_buffers(restored) if restored is not None else 0

    async def run(self) -> None:
        """Run everything until the final checkpoint; the first failure stops all of it."""
        await run_until_done(
            [self.driver.run(), *self.subtasks.main()],
            [
                self.collector.run(self.subtasks.live_objects),
                self.driver.objects.run(self.driver.refresh),
                *self.subtasks.services(),
            ],
        )


class Subtasks(Protocol):
    """The port for the subtasks of a start: those of this process, or of workers."""

    @property
    def tasks(self) -> Sequence[Task]:
        """The tasks that run in this process; none before they are built."""

    @property
    def elsewhere(self) -> "Sequence[JobStatus]":
        """What other processes said last of the subtasks that they have."""

    async def restore(self) -> None:
        """Load what is stored for them; nothing outside of the store is touched."""

    async def build(self, listener: CheckpointListener) -> Sequence[DrivenTask]:
        """Open user functions, let sinks recover; all tasks in the order of the job."""

    def main(self) -> list[Loop]:
        """What ends with the job."""

    def services(self) -> list[Loop]:
        """What runs besides, until it is cancelled."""

    async def live_objects(self) -> set[str]:
        """Stored objects that running subtasks refer to."""

    async def upload_again(self, lost: Set[str]) -> None:
        """Upload what running subtasks refer to of these objects, which the store has lost, or
        what stands for it; returns when that is done, or left to the next checkpoint.
        """


class LocalSubtasks:
    elsewhere = ()

    def __init__(
        self, states: SubtaskStates, exited: Callable[[SubtaskId], None] | None = None
    ) -> None:
        """`exited` is called when a task has exited and its state is released."""
        self.states = states
        self.tasks: list[Task] = []
        self.splits: Mapping[str, SourceSplits] = {}
        """What the tasks of each source share, by vertex; known when they are built."""
        self._exited = exited

    async def restore(self) -> None:
        await self.states.restore()

    async def build(self, listener: CheckpointListener) -> Sequence[Task]:
        """Migrate what is restored, open user functions and sinks."""
        await self.states.migrate()
        builder = TaskBuilder(self.states, listener)
        self.tasks, self.splits = await builder.build(), builder.splits
        return self.tasks

    async def live_objects(self) -> set[str]:
        return self.objects()

    async def upload_again(self, lost: Set[str]) -> None:
        ledger, replacing = self.states.start.ledger, []
        for task in self.tasks:
            subtask = self.states.subtasks[task.id]
            concerned = ledger.closure(subtask.snapshotter.objects()) & lost
            if not concerned or subtask.released:
                continue
            subtask.snapshots.lost |= concerned
            if subtask.materializer is not None:
                replacing.append(subtask.materializer.replace())
            else:
                subtask.snapshotter.start_over()
        await together(replacing)

    def objects(self) -> set[str]:
        """What `live_objects` answers, at once."""
        names: set[str] = set()
        for task in self.tasks:
            if not self.states.subtasks[task.id].released:
                parts = task.parts
                names |= parts.snapshotter.objects() | parts.canonical.objects()
                names |= parts.carrier.objects() if parts.carrier is not None else set()
        return names

    def main(self) -> list[Loop]:
        return list(map(self._live, self.tasks))

    def services(self) -> list[Loop]:
        start, states = self.states.start, self.states
        services = [
            self._tick([task for task in self.tasks if task.ticks]),
            warn_of_lag(
                lambda: states.materializers, start.config.materialize.interval, start.effects.clock
            ),
        ]
        if (uploader := start.uploader) is not None:
            services.append(uploader.run())
        if states.hydration is not None:
            services.append(states.hydration.run())
        return services

    async def _live(self, task: Task) -> None:
        """A task's whole life: its loop with its materializer, then the release of its state."""
        materializer, backend = self.states.subtasks[task.id].materializer, task.parts.backend
        hydration = backend.hydration
        if hydration is not None and hydration.first_reads is not None:
            await asyncio.shield(hydration.first_reads)
        if materializer is None:
            await task.run()
        else:
            await run_until_done([task.run()], [materializer.run()])
        await self.states.release(task.id)
        if self._exited is not None:
            self._exited(task.id)

    async def _tick(self, tasks: Sequence[Task]) -> None:
        while tasks:
            await self.states.start.effects.clock.sleep(TICK_S)
            for task in tasks:
                if not task.exited:
                    task.time_passed()
                    task.parts.output.work.standstills.look()


async def incarnate(
    states: SubtaskStates, subtasks: Subtasks, prove_newest: Callable[[], Awaitable[None]]
) -> Incarnation:
    """Restore all subtasks, let sinks recover, and build the tasks; close `states` also when this
    fails.

    `prove_newest` raises FencedError when a newer generation has started. It is asked before
    anything outside of the store is touched: user functions, and what sinks have staged.
    """
    start = states.start
    reports = Reports(_coordinator(start), start.effects.clock)
    collector = _collector(start)
    await subtasks.restore()
    await prove_newest()
    tasks = await subtasks.build(reports)
    objects = StoredObjects(start, collector, subtasks.upload_again)
    driver = CheckpointDriver(start, reports, collector, tasks, objects)
    return Incarnation(start, states, tasks, collector, driver, subtasks)


def _coordinator(start: JobStart) -> Coordinator[Any, Any]:
    plan, schedule = start.plan, start.config.checkpoint
    next_id = start.history.next_checkpoint_id
    if plan.checkpoint is not None:
        next_id = CheckpointId(max(next_id, plan.checkpoint.checkpoint_id + 1))
    started_at = start.effects.clock.monotonic()
    if math.isfinite(schedule.interval):
        started_at -= start.resources.phase() * schedule.interval
    return Coordinator(
        predecessors(plan.vertices),
        schedule,
        next_id,
        started_at,
        plan.finished,
        source_ends(start),
    )


def _collector(start: JobStart) -> Collector:
    collector = Collector(
        start.objects,
        start.slots,
        start.ledger,
        start.config.retain,
        first_generation=None if start.history.complete else start.author.generation,
        claimed_savepoint=start.plan.resumption.claimed_slot,
        unreadable=frozenset(start.history.damaged),
    )
    for checkpoint in start.history.checkpoints:
        collector.retain(checkpoint)
    return collector


async def run_until_done(main: Iterable[Loop], services: Iterable[Loop]) -> None:
    """Run all until the main ones ended; raises the first error of any."""
    # Lists, not sets: in a simulation equal runs take equal steps.
    needed = list(map(asyncio.ensure_future, main))
    running = needed + list(map(asyncio.ensure_future, services))
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
            for result in await asyncio.gather(*running, return_exceptions=True):
                if isinstance(result, Exception) and result is not first:
                    Event.FURTHER_FAILURE.log(logger, error=result)
