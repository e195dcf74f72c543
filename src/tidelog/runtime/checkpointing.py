"""The checkpoint driver: carries out what the coordinator decides.

Invariants: all decisions come from `checkpoint.coordinator`; sinks commit only after the slot
was won; objects are deleted only after the manifests that named them.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from tidelog.checkpoint.collector import Collector
from tidelog.checkpoint.coordinator import (
    Abort,
    Complete,
    Coordinator,
    Decision,
    Drain,
    FailJob,
    Refuse,
    Store,
    Trigger,
)
from tidelog.checkpoint.invariants import check_manifest
from tidelog.checkpoint.manifest import (
    Author,
    Checkpoint,
    OperatorState,
    Savepoint,
    SubtaskState,
    encode_entry,
    is_canonical,
)
from tidelog.checkpoint.request import SavepointRequest
from tidelog.checkpoint.sizes import CheckpointSizes, checkpoint_sizes
from tidelog.checkpoint.slots import SlotLog
from tidelog.dstl.cadence import Cadence
from tidelog.effects import Effects, wait_for
from tidelog.errors import CheckpointFailedError, FencedError, TidelogError
from tidelog.ids import CheckpointId, Slot
from tidelog.runtime.channels.messages import Barrier, BarrierOrder
from tidelog.runtime.finished import FinishedSubtasks
from tidelog.runtime.savepoints import Savepoints
from tidelog.runtime.tasks.parts import TaskId
from tidelog.runtime.tasks.source_task import SourceTask
from tidelog.runtime.tasks.task import Task
from tidelog.state.operator_dealing import union_in_part

Decisions = list[Decision[TaskId, SubtaskState]]

_RECENT: Final = 4096


@dataclass(slots=True)
class CheckpointMetrics:
    """Figures of the checkpoints since the start; seconds and bytes."""

    completed: int = 0
    failed: int = 0
    last_duration_s: float | None = None
    last_manifest_bytes: int = 0
    last_sizes: CheckpointSizes | None = None
    last_failure: str | None = None
    kept_aligned: str | None = None
    """Why barriers do not overtake although they were told to."""
    _durations_s: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))

    @property
    def durations_s(self) -> list[float]:
        """Durations of the last few thousand checkpoints, oldest first."""
        return list(self._durations_s)

    def complete(self, duration: float, manifest_bytes: int, sizes: CheckpointSizes) -> None:
        """Account for a completed checkpoint."""
        self.completed += 1
        self.last_duration_s = duration
        self._durations_s.append(duration)
        self.last_manifest_bytes = manifest_bytes
        self.last_sizes = sizes


@dataclass(slots=True)
class CheckpointDriver:
    """Runs the checkpoints of a job; tasks report to it (`CheckpointListener`)."""

    coordinator: Coordinator[TaskId, SubtaskState]
    effects: Effects
    slots: SlotLog
    author: Author
    job: str
    next_slot: Slot
    collector: Collector
    cadence: Cadence
    operators: Callable[[Mapping[TaskId, SubtaskState]], tuple[OperatorState, ...]]
    finished_subtasks: FinishedSubtasks
    order: BarrierOrder = "aligned"
    """What barriers do about the records before them."""
    previous: Checkpoint | None = None
    """The newest durable checkpoint: what the next one adds is counted against it."""
    tasks: list[Task] = field(default_factory=list)
    metrics: CheckpointMetrics = field(default_factory=CheckpointMetrics)
    savepoints: Savepoints = field(default_factory=Savepoints)
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _todo: Decisions = field(default_factory=list)
    _started: float = 0.0

    def acknowledged(self, checkpoint: CheckpointId, task: TaskId, state: SubtaskState) -> None:
        """A task's part is durable."""
        finished = state.finished
        self._decide(self.coordinator.acknowledged(checkpoint, task, state, finished=finished))

    def declined(self, checkpoint: CheckpointId, task: TaskId, reason: str) -> None:
        """A task cannot take part."""
        self._decide(self.coordinator.declined(checkpoint, reason, self._now()))

    def ended(self, task: TaskId) -> None:
        """A task handled all its data."""
        self._decide(self.coordinator.ended(task, self._now()))

    def keep_aligned(self, task: TaskId, reason: str) -> None:
        """In-flight data cannot be stored: from now on barriers wait their turn."""
        self.order = "aligned"
        self.metrics.kept_aligned = reason

    async def savepoint(self, request: SavepointRequest) -> Savepoint:
        """Take a savepoint; raises SavepointFailedError."""
        answer = self.savepoints.ask(request)
        self._decide(self.coordinator.savepoint(request, self._now()))
        return await answer

    async def run(self) -> None:
        """Drive checkpoints until the last one completed; raises when the job must stop."""
        try:
            await self._run()
        finally:
            self.savepoints.ended()

    async def _run(self) -> None:
        self._expect_next()
        while not self.coordinator.finished:
            while self._todo:
                await self._carry_out(self._todo.pop(0))
            if self.coordinator.finished:
                break
            await self._wait()
            self._decide(self.coordinator.tick(self._now()))
        self.finished.set()

    def _decide(self, decisions: Iterable[Decision[TaskId, SubtaskState]]) -> None:
        self._todo.extend(decisions)
        self._changed.set()

    def _now(self) -> float:
        return self.effects.clock.monotonic()

    async def _wait(self) -> None:
        """Until something happened or the coordinator's next deadline."""
        self._changed.clear()
        if self._todo:
            return
        due = self.coordinator.next_event_at()
        left = None if due is None else max(0.0, due - self._now())
        await wait_for(self._changed, self.effects.clock, left)

    def _expect_next(self) -> None:
        idle = self.coordinator.in_progress is None
        self.cadence.expect(self.coordinator.next_event_at() if idle else None)

    async def _carry_out(self, decision: Decision[TaskId, SubtaskState]) -> None:
        match decision:
            case Trigger():
                self._trigger(decision)
            case Drain():
                for source in self._sources():
                    source.drain()
            case Store():
                await self._store(decision)
            case Refuse(savepoint, reason):
                self.savepoints.failed(savepoint, reason)
            case Abort():
                self._abort(decision)
            case Complete():
                await self._complete(decision)
            case FailJob(failures, reason):
                raise CheckpointFailedError(
                    f"{failures} checkpoints in a row failed",
                    found=reason,
                    action="mend the cause and start the job again; it resumes from its last "
                    "completed checkpoint",
                )

    def _sources(self) -> Iterator[SourceTask]:
        return (task for task in self.tasks if isinstance(task, SourceTask))

    def _trigger(self, decision: Trigger[TaskId]) -> None:
        self.cadence.triggered()
        self._started = self._now()
        # Whoever asks for a savepoint has time: it holds no in-flight data.
        order = self.order if decision.savepoint is None else "aligned"
        barrier = Barrier(
            decision.checkpoint, self._started, decision.final, order, decision.savepoint
        )
        for task in self.tasks:
            if task.id in decision.starts_at:
                task.trigger(barrier)

    def _abort(self, decision: Abort) -> None:
        self._expect_next()
        self.metrics.failed += 1
        self.metrics.last_failure = decision.reason
        for task in self.tasks:
            task.abort(decision.checkpoint)
        if decision.savepoint is not None:
            self.savepoints.failed(decision.savepoint, decision.reason)

    async def _complete(self, decision: Complete[TaskId, SubtaskState]) -> None:
        self._expect_next()
        self.finished_subtasks.add(decision.exited)
        for task in self.tasks:
            await task.complete(decision.checkpoint)
        for task in self.tasks:
            if task.id in decision.exited:
                task.leave()
        if decision.savepoint is not None:
            self.savepoints.completed(decision.savepoint)

    async def _store(self, decision: Store[TaskId, SubtaskState]) -> None:
        checkpoint = decision.checkpoint
        entry = self._entry(decision)
        if (reason := union_in_part(entry.operators)) is not None:
            self._decide(self.coordinator.declined(checkpoint, reason, self._now()))
            return
        check_manifest(entry)
        try:
            with self.cadence.moving():
                entry = await self._append(entry)
        except FencedError:
            raise
        except TidelogError as error:
            self._decide(self.coordinator.declined(checkpoint, str(error), self._now()))
            return
        sizes = checkpoint_sizes(entry, self.previous, self.collector.ledger.parts)
        self.metrics.complete(self._now() - self._started, len(encode_entry(entry)), sizes)
        self._durable(entry)
        self._decide(self.coordinator.stored(checkpoint, self._now()))

    def _entry(self, decision: Store[TaskId, SubtaskState]) -> Checkpoint:
        entry = Checkpoint(
            slot=self.next_slot,
            author=self.author,
            checkpoint_id=decision.checkpoint,
            created_ms=self.effects.clock.now_ms(),
            job=self.job,
            operators=self.operators(self.finished_subtasks.complete(decision.states)),
            final=decision.final,
        )
        wanted = decision.savepoint
        if wanted is None:
            return entry
        fields = {name: getattr(entry, name) for name in entry.__struct_fields__}
        return Savepoint(**fields, name=wanted.name, savepoint_format=wanted.format)

    def _durable(self, entry: Checkpoint) -> None:
        """A slot is won."""
        if not is_canonical(entry):
            self.previous = entry
        self.savepoints.known([entry])
        self.collector.completed(entry)

    async def _append(self, entry: Checkpoint) -> Checkpoint:
        """Put the entry into the next slot that is not ours already."""
        while (earlier := await self.slots.append(entry)) is not None:
            # Given up because its answer was lost, but durable: it counts as retained.
            self._durable(earlier)
            self.next_slot = Slot(self.next_slot + 1)
            entry = msgspec.structs.replace(entry, slot=self.next_slot)
        self.next_slot = Slot(self.next_slot + 1)
        return entry
