"""The checkpoint driver: carries out what the coordinator decides.

Invariants: all decisions come from `checkpoint.coordinator`; sinks commit only after the slot
was won; objects are deleted only after the manifests that named them.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from tidelog.checkpoint.config import Change
from tidelog.checkpoint.coordinator import Coordinator
from tidelog.checkpoint.decisions import (
    Abort,
    BeforeEnd,
    Complete,
    Decision,
    Drain,
    End,
    FailJob,
    NothingNew,
    Refuse,
    SavepointRequest,
    Store,
    Trigger,
)
from tidelog.checkpoint.formats import FORMATS, above_first
from tidelog.checkpoint.garbage_collector import Collector
from tidelog.checkpoint.invariants import check_manifest
from tidelog.checkpoint.manifest import (
    Checkpoint,
    OperatorState,
    Savepoint,
    SlotRanges,
    SubtaskState,
    encode_entry,
    is_canonical,
)
from tidelog.checkpoint.sizes import checkpoint_sizes, contents_of
from tidelog.errors import CheckpointFailedError, FencedError, StorageError, TidelogError
from tidelog.events import Event
from tidelog.ids import Slot, SubtaskId
from tidelog.options.units import plural
from tidelog.runtime.channels.messages import Barrier
from tidelog.runtime.checkpoints.completed import CheckpointMetrics, completed
from tidelog.runtime.checkpoints.entries import operators_of
from tidelog.runtime.checkpoints.requests import (
    CheckpointRequests,
    DrivenTask,
    Reports,
    Savepoints,
    change_of,
)
from tidelog.runtime.checkpoints.stored_objects import StoredObjects
from tidelog.runtime.subtasks.loading import Loading, loading
from tidelog.runtime.subtasks.start import JobStart

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class CheckpointDriver:
    start: JobStart
    reports: Reports
    collector: Collector
    tasks: Sequence[DrivenTask]
    objects: StoredObjects
    next_slot: Slot = field(init=False)
    previous: Checkpoint | None = field(init=False)
    """The newest durable checkpoint: what the next one adds is counted against it."""
    savepoints: Savepoints = field(default_factory=Savepoints)
    metrics: CheckpointMetrics = field(default_factory=CheckpointMetrics)
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    _newest: Checkpoint | None = None
    """The newest that is durable, also a canonical savepoint."""
    _exited: dict[SubtaskId, SubtaskState] = field(init=False)
    """Subtasks that finished, with their state in the checkpoint that contains their finish."""
    _unproven: list[Checkpoint] = field(default_factory=list)
    """Checkpoints that were given up because no answer came, and are in their slots after all."""
    _requests: CheckpointRequests = field(init=False)
    _waiting: dict[str, set[SubtaskId]] = field(init=False)
    """Sources that have not begun, and the tasks whose input they wait for."""
    looked_at: dict[str, int] | None = None
    """The sources of a job that had ended, which have nothing more to read, and how many splits
    each has; None: there is something, or the job had not ended."""
    _before_end: tuple[OperatorState, ...] = field(init=False)
    """The state before the end, which all manifests have from then on; empty before."""
    _closed: bool = False
    """No checkpoint completes any more."""
    _started: float = 0.0

    def __post_init__(self) -> None:
        plan = self.start.plan
        self._exited = dict(plan.finished)
        self._before_end = plan.before_end
        of_vertex = {vertex.id: set(vertex.subtasks) for vertex in plan.vertices}
        self._waiting = {
            source: set().union(*map(of_vertex.__getitem__, awaited)).difference(plan.finished)
            for source, awaited in self._loading().awaited.items()
        }
        self.next_slot = Slot(self.start.author.generation + 1)
        self.previous = None if plan.resumption.origin is not None else plan.checkpoint
        self.savepoints.known(self.start.history.checkpoints)
        self._requests = CheckpointRequests(self.start.job.name)
        self._closed = plan.checkpoint is not None and plan.checkpoint.final

    @property
    def coordinator(self) -> Coordinator[SubtaskId, SubtaskState]:
        return self.reports.coordinator

    async def savepoint(self, request: SavepointRequest) -> Savepoint:
        if request.format == "native" and not self._closed:
            # It refers to what older checkpoints do: what of that is lost is replaced before.
            await self.objects.look(self._patience_s(request))
        answer = self.savepoints.ask(request)
        if self._closed:
            self.savepoints.ended()
        else:
            self.reports.decide(self.coordinator.savepoint(request, self._now()))
        return await answer

    def _patience_s(self, request: SavepointRequest | None) -> float:
        chosen = request.timeout_s if request is not None else None
        return self.start.config.checkpoint.timeout if chosen is None else chosen

    def refresh(self) -> None:
        """Let a checkpoint begin as soon as may be, for nobody waits for it."""
        if not self._closed:
            self.reports.decide(self.coordinator.hurry(self._now())[1])

    async def checkpoint(self) -> Checkpoint:
        """Wait for a checkpoint of all that is there now; one that fails is tried again.

        Raises CheckpointFailedError when the job ends before.
        """
        if self._closed:
            raise self._requests.refusal()
        first, decisions = self.coordinator.hurry(self._now())
        answer = self._requests.ask(first)
        self.reports.decide(decisions)
        return await answer

    async def run(self) -> None:
        """Drive checkpoints until the last one completed; raises when the job must stop."""
        try:
            await self._run()
        finally:
            self.savepoints.ended()
            self._closed = True
            self._requests.ended()

    async def _run(self) -> None:
        self._expect_next()
        self.metrics.next_since = self._now()
        while not self.coordinator.finished:
            await self.carry_out()
            self._begin_sources()
            if self.coordinator.finished:
                break
            await self.reports.wait()
            await self._tick()
        await self.carry_out()
        self.finished.set()

    def _loading(self) -> Loading:
        plan = loading(self.start.plan.vertices)
        for operator in plan.racing:
            Event.TABLE_WITHOUT_END.log(logger, operator=operator)
        for source, tables in plan.awaited.items():
            Event.SOURCE_WAITS.log(logger, source=source, tables=", ".join(sorted(tables)))
        return plan

    def _begin_sources(self) -> None:
        """Let sources begin whose tables are read to their end."""
        for source, awaited in list(self._waiting.items()):
            if awaited <= self.reports.at_end_tasks:
                del self._waiting[source]
                for task in self.tasks:
                    if task.id.operator == source:
                        task.begin()

    async def change(self) -> Change:
        """What a checkpoint would hold that the last durable one does not."""
        return await change_of(self.tasks)

    async def _tick(self) -> None:
        asks = self.coordinator.asks_for_change(self._now())
        change = await self.change() if asks else Change.STATE
        self.reports.decide(self.coordinator.tick(self._now(), change=change))
        if asks and self.coordinator.in_progress is None:
            self._expect_next()
            if change is Change.NONE:
                self.metrics.next_since = self._now()  # a restart would repeat nothing

    def _now(self) -> float:
        return self.start.effects.clock.monotonic()

    async def carry_out(self) -> None:
        while self.reports.decisions:
            await self._carry_out(self.reports.decisions.popleft())

    def _expect_next(self) -> None:
        idle = self.coordinator.in_progress is None
        self.start.cadence.expect(self.coordinator.next_event_at() if idle else None)

    async def _carry_out(self, decision: Decision[SubtaskId, SubtaskState]) -> None:
        match decision:
            case Trigger():
                self._trigger(decision)
            case Drain() | End() | NothingNew():
                self._tell(decision)
            case BeforeEnd(checkpoint, states):
                self._before_end = operators_of(self.start, states, self._exited)
                self._expect_next()
                self.reports.decide(self.coordinator.captured(checkpoint, self._now()))
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
                    f"{plural(failures, 'checkpoint')} in a row failed",
                    expected="no more than `tolerable_failures`",
                    found=reason,
                    action="remove the cause and start the job again; it resumes from its last "
                    "completed checkpoint",
                )

    def _tell(self, decision: Drain | End[SubtaskId] | NothingNew) -> None:
        """Tell tasks how their data ends."""
        for task in self.tasks:
            match decision:
                case Drain():
                    task.drain()
                case NothingNew():
                    self.looked_at = self.reports.splits
                    task.leave()
                case End(ending) if task.id in ending:
                    task.end()

    def _trigger(self, decision: Trigger[SubtaskId]) -> None:
        self.start.cadence.triggered(sum(not task.exited for task in self.tasks))
        self._started = self._now()
        config = self.start.config
        # A savepoint holds no in-flight data, and before the end there is none to overtake.
        aligned = decision.savepoint is not None or decision.before_end
        aligned |= self.reports.kept_aligned is not None
        order = config.unaligned.order if config.overtakes and not aligned else "aligned"
        barrier = Barrier(
            decision.checkpoint,
            self._started,
            decision.final,
            order,
            decision.savepoint,
            decision.before_end,
        )
        for task in self.tasks:
            if task.id in decision.starts_at:
                task.trigger(barrier)

    def _abort(self, decision: Abort) -> None:
        Event.CHECKPOINT_ABORTED.log(logger, attempt=decision.checkpoint, reason=decision.reason)
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
            await self.start.slots.prove_not_fenced(Slot(self.next_slot - 1), self.start.author)
        except StorageError as error:
            Event.NEWER_START_UNKNOWN.log(logger, error=error)

    async def _complete(self, decision: Complete[SubtaskId, SubtaskState]) -> None:
        self._expect_next()
        self._exited.update(decision.exited)
        for task in self.tasks:
            await task.complete(decision.checkpoint)
        for task in self.tasks:
            if task.id in decision.exited:
                task.leave()
        if decision.savepoint is not None:
            self.savepoints.completed(decision.savepoint)
        if self._newest is not None:
            self._requests.completed(decision.checkpoint, self._newest)

    async def _store(self, decision: Store[SubtaskId, SubtaskState]) -> None:
        checkpoint = decision.checkpoint
        durable_s = self._now() - self._started
        entry = self._entry(decision)
        check_manifest(entry)
        if (reason := await self._lacks_objects(decision, entry)) is not None:
            self.reports.declined(checkpoint, reason)
            return
        try:
            with self.start.cadence.moving():
                entry = await self._append(entry)
        except FencedError:
            raise
        except TidelogError as error:
            self.reports.declined(checkpoint, str(error))
            return
        sizes = checkpoint_sizes(entry, self.previous, self.collector.ledger.parts)
        now = self._now()
        seconds = now - self._started
        Event.CHECKPOINT_COMPLETED.log(
            logger, checkpoint=entry.slot, attempt=checkpoint, seconds=seconds
        )
        size, times = len(encode_entry(entry)), (durable_s, seconds)
        remembered = completed(entry, self.previous, times, size, sizes)
        self.metrics.complete(now, remembered, contents_of(entry))
        self._durable(entry)
        self.reports.decide(self.coordinator.stored(checkpoint, self._now()))

    async def _lacks_objects(
        self, decision: Store[SubtaskId, SubtaskState], entry: Checkpoint
    ) -> str | None:
        """Why a savepoint, or the last checkpoint, cannot be restored: the local tables go next."""
        savepoint = decision.savepoint
        if savepoint is None and not decision.final:
            return None
        # A last checkpoint is tried once more, with what was uploaded; the output must get out.
        failures, allowed = self.coordinator.consecutive_failures, self.start.config.checkpoint
        insists = savepoint is not None or failures < min(1, allowed.tolerable_failures)
        reason = await self.objects.lacking(entry, self._patience_s(savepoint))
        return reason if insists else None

    def _entry(self, decision: Store[SubtaskId, SubtaskState]) -> Checkpoint:
        entry = Checkpoint(
            slot=self.next_slot,
            author=self.start.author,
            checkpoint_id=decision.checkpoint,
            created_ms=self.start.effects.clock.now_ms(),
            job=self.start.job.name,
            operators=operators_of(self.start, decision.states, self._exited),
            final=decision.final,
            history=self._history(savepoint=decision.savepoint is not None),
            formats=above_first(FORMATS),
            before_end=self._before_end,
        )
        request = decision.savepoint
        if request is None:
            return entry
        fields = {**msgspec.structs.asdict(entry), "name": request.name, "stop": request.stop}
        if request.format == "canonical":
            fields["before_end"] = ()  # it needs no object that the job's log and tables need
        return Savepoint(**fields, savepoint_format=request.format)

    def _durable(self, entry: Checkpoint) -> None:
        """The checkpoint holds its slot, and no newer generation had started."""
        self._newest = entry
        if not is_canonical(entry):
            self.previous = entry
        self.savepoints.known([entry])
        self.collector.completed(entry)

    async def _append(self, entry: Checkpoint) -> Checkpoint:
        """Write the entry into the next slot that does not hold an earlier checkpoint of ours."""
        while (earlier := await self.start.slots.append(entry)) is not None:
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
            self.next_slot, savepoint=savepoint, unproven=[entry.slot for entry in self._unproven]
        )
