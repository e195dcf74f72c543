"""The checkpoint driver: carries out what the coordinator decides.

Invariants: all decisions come from `checkpoint.coordinator`; sinks commit only after the slot
was won; objects are deleted only after the manifests that named them.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from tidelog.changelog.cadence import Cadence
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
from tidelog.checkpoint.garbage_collector import Collector
from tidelog.checkpoint.invariants import check_manifest
from tidelog.checkpoint.manifest import (
    Author,
    Checkpoint,
    Savepoint,
    SlotRanges,
    SubtaskState,
    encode_entry,
    is_canonical,
)
from tidelog.checkpoint.request import SavepointRequest
from tidelog.checkpoint.sizes import (
    CheckpointContents,
    checkpoint_sizes,
    contents_of,
)
from tidelog.checkpoint.slots import SlotLog
from tidelog.effects import Effects, wait_for
from tidelog.errors import CheckpointFailedError, FencedError, StorageError, TidelogError
from tidelog.events import Event
from tidelog.ids import CheckpointId, Slot, SubtaskId
from tidelog.runtime.channels.messages import Barrier, BarrierOrder
from tidelog.runtime.checkpoints.completed import CompletedCheckpoint, completed
from tidelog.runtime.checkpoints.operators import ManifestOperators
from tidelog.runtime.checkpoints.savepoints import Savepoints
from tidelog.runtime.tasks.task import Task
from tidelog.state.operator_state import union_in_part

Decisions = list[Decision[SubtaskId, SubtaskState]]

logger = logging.getLogger(__name__)

_RECENT: Final = 4096
_DESCRIBED: Final = 512
"""Checkpoints of which more than the duration is remembered."""


class CheckpointMetrics(msgspec.Struct):
    """Figures of the checkpoints since the start; seconds and bytes."""

    completed: int = 0
    failed: int = 0
    last_contents: CheckpointContents | None = None
    last_failure: str | None = None
    kept_aligned: str | None = None
    """Why barriers do not overtake although the configuration lets them."""
    next_since: float | None = None
    """When the wait for the next completed checkpoint began, on the monotonic clock."""
    recent: deque[CompletedCheckpoint] = msgspec.field(
        default_factory=lambda: deque(maxlen=_DESCRIBED)
    )
    """The last few hundred checkpoints, oldest first."""
    _durations_s: deque[float] = msgspec.field(default_factory=lambda: deque(maxlen=_RECENT))

    @property
    def last(self) -> CompletedCheckpoint | None:
        """The last completed checkpoint."""
        return self.recent[-1] if self.recent else None

    @property
    def durations_s(self) -> list[float]:
        """Durations of the last few thousand checkpoints, oldest first."""
        return list(self._durations_s)

    def complete(
        self, now: float, checkpoint: CompletedCheckpoint, contents: CheckpointContents
    ) -> None:
        """Account for a completed checkpoint."""
        self.completed += 1
        self.next_since = now
        self._durations_s.append(checkpoint.seconds)
        self.last_contents = contents
        self.recent.append(checkpoint)


@dataclass(slots=True)
class CheckpointDriver:
    """Runs the checkpoints of a job; tasks report to it (`CheckpointListener`)."""

    coordinator: Coordinator[SubtaskId, SubtaskState]
    effects: Effects
    slots: SlotLog
    author: Author
    job: str
    next_slot: Slot
    collector: Collector
    cadence: Cadence
    operators: ManifestOperators
    savepoints: Savepoints
    tasks: Sequence[Task]
    order: BarrierOrder = "aligned"
    """Whether barriers may overtake the records before them."""
    previous: Checkpoint | None = None
    """The newest durable checkpoint: what the next one adds is counted against it."""
    metrics: CheckpointMetrics = field(default_factory=CheckpointMetrics)
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _todo: Decisions = field(default_factory=list)
    _unproven: list[Checkpoint] = field(default_factory=list)
    """Checkpoints that were given up because no answer came, and are in their slots after all."""
    _waiting: list[tuple[CheckpointId, asyncio.Future[Checkpoint]]] = field(default_factory=list)
    """Who waits for a checkpoint from this id on."""
    _over: bool = False
    """No checkpoint completes any more."""
    _started: float = 0.0

    def acknowledged(self, checkpoint: CheckpointId, task: SubtaskId, state: SubtaskState) -> None:
        """A task's part is durable."""
        finished = state.finished
        self._decide(self.coordinator.acknowledged(checkpoint, task, state, finished=finished))

    def declined(self, checkpoint: CheckpointId, reason: str) -> None:
        """A task cannot take part."""
        self._decide(self.coordinator.declined(checkpoint, reason, self._now()))

    def ended(self, task: SubtaskId) -> None:
        """A task handled all its data."""
        self._decide(self.coordinator.ended(task, self._now()))

    def keep_aligned(self, reason: str) -> None:
        """In-flight data cannot be stored: from now on barriers wait their turn."""
        Event.BARRIERS_STAY_ALIGNED.log(logger, reason=reason)
        self.order = "aligned"
        self.metrics.kept_aligned = reason

    async def savepoint(self, request: SavepointRequest) -> Savepoint:
        """Take a savepoint; raises SavepointFailedError."""
        answer = self.savepoints.ask(request)
        self._decide(self.coordinator.savepoint(request, self._now()))
        return await answer

    async def checkpoint(self) -> Checkpoint:
        """Wait for a checkpoint of all that is there now; one that fails is tried again.

        Raises CheckpointFailedError when the job ends before.
        """
        if self._over:
            raise self._no_more()
        least, decisions = self.coordinator.hurry(self._now())
        answer: asyncio.Future[Checkpoint] = asyncio.get_running_loop().create_future()
        self._waiting.append((least, answer))
        self._decide(decisions)
        return await answer

    async def run(self) -> None:
        """Drive checkpoints until the last one completed; raises when the job must stop."""
        try:
            await self._run()
        finally:
            self.savepoints.ended()
            self._over = True
            for _, answer in self._waiting:
                if not answer.done():
                    answer.set_exception(self._no_more())

    def _answer(self, checkpoint: CheckpointId, entry: Checkpoint) -> None:
        """Answer who waits for this checkpoint or an earlier one."""
        for least, answer in self._waiting:
            if least <= checkpoint and not answer.done():
                answer.set_result(entry)
        self._waiting = [each for each in self._waiting if not each[1].done()]

    def _no_more(self) -> CheckpointFailedError:
        return CheckpointFailedError(
            f"a checkpoint of {self.job!r}",
            expected="to be completed",
            found="the end of the job",
            action="see why it ended; what was durable before is",
        )

    async def _run(self) -> None:
        self._expect_next()
        self.metrics.next_since = self._now()
        while not self.coordinator.finished:
            while self._todo:
                await self._carry_out(self._todo.pop(0))
            if self.coordinator.finished:
                break
            await self._wait()
            self._tick()
        self.finished.set()

    @property
    def unchanged(self) -> bool:
        """A checkpoint would hold what the last durable one does."""
        return all(task.unchanged for task in self.tasks)

    def _tick(self) -> None:
        idle, unchanged = self.coordinator.in_progress is None, self.unchanged
        due_at = self.coordinator.next_event_at()
        self._decide(self.coordinator.tick(self._now(), unchanged=unchanged))
        if idle and unchanged and due_at != self.coordinator.next_event_at():
            self._expect_next()
            self.metrics.next_since = self._now()  # nobody waits in vain for one

    def _decide(self, decisions: Iterable[Decision[SubtaskId, SubtaskState]]) -> None:
        self._todo.extend(decisions)
        self._changed.set()

    def _now(self) -> float:
        return self.effects.clock.monotonic()

    async def _wait(self) -> None:
        """Wait until something happened or the coordinator's next deadline has come."""
        self._changed.clear()
        if self._todo:
            return
        due = self.coordinator.next_event_at()
        left = None if due is None else max(0.0, due - self._now())
        await wait_for(self._changed, self.effects.clock, left)

    def _expect_next(self) -> None:
        idle = self.coordinator.in_progress is None
        self.cadence.expect(self.coordinator.next_event_at() if idle else None)

    async def _carry_out(self, decision: Decision[SubtaskId, SubtaskState]) -> None:
        match decision:
            case Trigger():
                self._trigger(decision)
            case Drain():
                for task in self.tasks:
                    task.drain()
            case Store():
                await self._store(decision)
            case Refuse(savepoint, reason):
                Event.SAVEPOINT_REFUSED.log(logger, savepoint=savepoint.name, reason=reason)
                self.savepoints.failed(savepoint, reason)
            case Abort():
                self._abort(decision)
                await self._prove_not_fenced()
            case Complete():
                await self._complete(decision)
            case FailJob(failures, reason):
                raise CheckpointFailedError(
                    f"{failures} checkpoints in a row failed",
                    found=reason,
                    action="mend the cause and start the job again; it resumes from its last "
                    "completed checkpoint",
                )

    def _trigger(self, decision: Trigger[SubtaskId]) -> None:
        self.cadence.triggered(sum(not task.exited for task in self.tasks))
        self._started = self._now()
        # A savepoint holds no in-flight data.
        order = self.order if decision.savepoint is None else "aligned"
        barrier = Barrier(
            decision.checkpoint, self._started, decision.final, order, decision.savepoint
        )
        for task in self.tasks:
            if task.id in decision.starts_at:
                task.trigger(barrier)

    def _abort(self, decision: Abort) -> None:
        Event.CHECKPOINT_ABORTED.log(logger, checkpoint=decision.checkpoint, reason=decision.reason)
        self._expect_next()
        self.metrics.failed += 1
        self.metrics.last_failure = decision.reason
        for task in self.tasks:
            task.abort(decision.checkpoint)
        if decision.savepoint is not None:
            self.savepoints.failed(decision.savepoint, decision.reason)

    async def _prove_not_fenced(self) -> None:
        """After a failed checkpoint: a newer start removes what we write, and may be the reason."""
        try:
            await self.slots.prove_not_fenced(Slot(self.next_slot - 1), self.author)
        except StorageError as error:
            Event.NEWER_START_UNKNOWN.log(logger, error=error)

    async def _complete(self, decision: Complete[SubtaskId, SubtaskState]) -> None:
        self._expect_next()
        self.operators.exited(decision.exited)
        for task in self.tasks:
            await task.complete(decision.checkpoint)
        for task in self.tasks:
            if task.id in decision.exited:
                task.leave()
        if decision.savepoint is not None:
            self.savepoints.completed(decision.savepoint)
        if self.previous is not None:
            self._answer(decision.checkpoint, self.previous)

    async def _store(self, decision: Store[SubtaskId, SubtaskState]) -> None:
        checkpoint = decision.checkpoint
        durable_s = self._now() - self._started
        entry = self._entry(decision)
        if (reason := union_in_part(entry.operators)) is not None:
            self.declined(checkpoint, reason)
            return
        check_manifest(entry)
        try:
            with self.cadence.moving():
                entry = await self._append(entry)
        except FencedError:
            raise
        except TidelogError as error:
            self.declined(checkpoint, str(error))
            return
        sizes = checkpoint_sizes(entry, self.previous, self.collector.ledger.parts)
        now = self._now()
        seconds = now - self._started
        Event.CHECKPOINT_COMPLETED.log(
            logger, checkpoint=checkpoint, slot=entry.slot, seconds=seconds
        )
        size, times = len(encode_entry(entry)), (durable_s, seconds)
        remembered = completed(entry, self.previous, times, size, sizes)
        self.metrics.complete(now, remembered, contents_of(entry))
        self._durable(entry)
        self._decide(self.coordinator.stored(checkpoint, self._now()))

    def _entry(self, decision: Store[SubtaskId, SubtaskState]) -> Checkpoint:
        entry = Checkpoint(
            slot=self.next_slot,
            author=self.author,
            checkpoint_id=decision.checkpoint,
            created_ms=self.effects.clock.now_ms(),
            job=self.job,
            operators=self.operators.of(decision.states),
            final=decision.final,
            history=self._history(savepoint=decision.savepoint is not None),
        )
        wanted = decision.savepoint
        if wanted is None:
            return entry
        fields = {name: getattr(entry, name) for name in entry.__struct_fields__}
        return Savepoint(**fields, name=wanted.name, savepoint_format=wanted.format)

    def _durable(self, entry: Checkpoint) -> None:
        """The checkpoint holds its slot, and no newer generation had started."""
        if not is_canonical(entry):
            self.previous = entry
        self.savepoints.known([entry])
        self.collector.completed(entry)

    async def _append(self, entry: Checkpoint) -> Checkpoint:
        """Write the entry into the next slot that does not hold an earlier checkpoint of ours."""
        while (earlier := await self.slots.append(entry)) is not None:
            self._unproven.append(earlier)
            self.next_slot = Slot(self.next_slot + 1)
            history = self._history(savepoint=isinstance(entry, Savepoint))
            entry = msgspec.structs.replace(entry, slot=self.next_slot, history=history)
        for proven in self._unproven:
            self._durable(proven)
        self._unproven.clear()
        self.next_slot = Slot(self.next_slot + 1)
        return entry

    def _history(self, *, savepoint: bool) -> SlotRanges:
        return self.collector.history(
            self.next_slot, savepoint=savepoint, unproven=[each.slot for each in self._unproven]
        )
