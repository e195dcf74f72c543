"""The checkpoint coordinator: a pure state machine, events in, decisions out.

Invariants:
- at most one checkpoint is in progress, and its id was never used before;
- a checkpoint is stored only when every task acknowledged it, and completed only when stored;
- a decline, a timeout or a storage error discards the whole checkpoint (Carbone et al., 2015);
- the final checkpoint is triggered as soon as all tasks ended, and nothing is triggered after it;
- one savepoint at most is asked for at a time; it is the next checkpoint, and its failure, told to
  whoever asked, is none of the failures in a row. A drain has no way back: the final checkpoint is
  its savepoint, however often it takes.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidelog.checkpoint.request import SavepointRequest
from tidelog.ids import CheckpointId

Task = TypeVar("Task", bound=Hashable)
State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Schedule:
    """When checkpoints happen; all times in seconds."""

    interval: float = 1.0
    timeout: float = 600.0
    min_pause: float = 0.0
    tolerable_failures: int = 10
    """Consecutive failures that do not stop the job."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """Send barriers of this checkpoint into the sources."""

    checkpoint: CheckpointId
    final: bool
    savepoint: SavepointRequest | None = None


@dataclass(frozen=True, slots=True)
class Drain:
    """Tell the sources that their data ends here."""


@dataclass(frozen=True, slots=True)
class Store(Generic[Task, State]):
    """Every task acknowledged: write the manifest."""

    checkpoint: CheckpointId
    states: dict[Task, State]
    final: bool
    savepoint: SavepointRequest | None = None


@dataclass(frozen=True, slots=True)
class Abort:
    """Tell the tasks that this checkpoint will not complete."""

    checkpoint: CheckpointId
    reason: str
    savepoint: SavepointRequest | None = None
    """It was this savepoint, and it is not tried again."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Tell whoever asked for a savepoint that there will be none."""

    savepoint: SavepointRequest
    reason: str


@dataclass(frozen=True, slots=True)
class Complete:
    """Tell the tasks that this checkpoint is durable: sinks commit."""

    checkpoint: CheckpointId
    final: bool
    savepoint: SavepointRequest | None = None


@dataclass(frozen=True, slots=True)
class FailJob:
    """Too many checkpoints failed in a row."""

    failures: int
    reason: str


Decision = Trigger | Drain | Store[Task, State] | Abort | Refuse | Complete | FailJob


@dataclass(slots=True)
class _InProgress(Generic[Task, State]):
    checkpoint: CheckpointId
    started: float
    final: bool
    missing: set[Task]
    states: dict[Task, State]
    timeout: float
    savepoint: SavepointRequest | None
    storing: bool = False


class Coordinator(Generic[Task, State]):
    """Decides over the checkpoints of one running job."""

    def __init__(
        self, tasks: Iterable[Task], schedule: Schedule, next_id: CheckpointId, now: float
    ) -> None:
        self._tasks = frozenset(tasks)
        self._schedule = schedule
        self._next_id = next_id
        self._due = now + schedule.interval
        self._running: _InProgress[Task, State] | None = None
        self._ended: set[Task] = set()
        self._done = False
        self._wanted: SavepointRequest | None = None
        """Asked for, and not triggered yet."""
        self.consecutive_failures = 0

    @property
    def in_progress(self) -> CheckpointId | None:
        """The checkpoint under way."""
        return None if self._running is None else self._running.checkpoint

    @property
    def finished(self) -> bool:
        """The final checkpoint completed, or the savepoint that the job was to stop with."""
        return self._done

    def next_event_at(self) -> float | None:
        """When `tick` has something to decide next; None when it waits for events alone."""
        if self._done:
            return None
        if self._running is not None:
            late = self._running.started + self._running.timeout
            return None if self._running.storing else late
        return self._due

    def tick(self, now: float) -> list[Decision[Task, State]]:
        """Time passed: a checkpoint may be due, or the one in progress late."""
        running = self._running
        if running is not None:
            late = now - running.started >= running.timeout
            # A manifest under way may already be durable: it is stored or it fails, never aborted.
            if late and not running.storing:
                waiting = ", ".join(sorted(map(str, running.missing)))
                return self._fail(now, f"timed out after {running.timeout} s: {waiting}")
            return []
        if self._done or now < self._due:
            return []
        return self._trigger(now)

    def savepoint(self, request: SavepointRequest, now: float) -> list[Decision[Task, State]]:
        """Somebody asks for a savepoint; it comes as soon as no other checkpoint is under way."""
        running = self._running
        if self._done or (running is not None and running.final):
            return [Refuse(request, "the job has reached its end")]
        other = self._wanted or (running.savepoint if running is not None else None)
        if other is not None:
            return [Refuse(request, f"savepoint {other.name!r} is under way")]
        self._wanted = request
        if request.drain and not self._all_ended():
            return [Drain()]
        return self._trigger(now) if running is None else []

    def ended(self, task: Task, now: float) -> list[Decision[Task, State]]:
        """A task has seen the end of its data and run its `finish`."""
        self._ended.add(task)
        idle = self._running is None and not self._done
        return self._trigger(now) if idle and self._all_ended() else []

    def acknowledged(
        self, checkpoint: CheckpointId, task: Task, state: State
    ) -> list[Decision[Task, State]]:
        """A task's snapshot is durable."""
        running = self._running
        if running is None or running.checkpoint != checkpoint or task not in running.missing:
            return []
        running.missing.discard(task)
        running.states[task] = state
        if running.missing:
            return []
        running.storing = True
        return [Store(checkpoint, running.states, running.final, running.savepoint)]

    def declined(
        self, checkpoint: CheckpointId, reason: str, now: float
    ) -> list[Decision[Task, State]]:
        """A task could not take part, or the manifest could not be written."""
        if self.in_progress != checkpoint:
            return []
        return self._fail(now, reason)

    def stored(self, checkpoint: CheckpointId, now: float) -> list[Decision[Task, State]]:
        """The manifest holds its slot."""
        running = self._running
        assert running is not None and running.checkpoint == checkpoint and running.storing
        self._running = None
        self.consecutive_failures = 0
        self._done = running.final or (running.savepoint is not None and running.savepoint.stop)
        self._due = max(running.started + self._schedule.interval, now + self._schedule.min_pause)
        decisions: list[Decision[Task, State]] = [
            Complete(checkpoint, running.final, running.savepoint)
        ]
        if not self._done and (self._all_ended() or self._savepoint_due()):
            decisions += self._trigger(now)
        return decisions

    def _savepoint_due(self) -> bool:
        """A savepoint is wanted that has not to wait for the end of the data."""
        return self._wanted is not None and (not self._wanted.drain or self._all_ended())

    def _all_ended(self) -> bool:
        return self._ended >= self._tasks

    def _trigger(self, now: float) -> list[Decision[Task, State]]:
        checkpoint = self._next_id
        self._next_id = CheckpointId(checkpoint + 1)
        final = self._all_ended()
        savepoint, timeout = None, self._schedule.timeout
        if self._savepoint_due():
            savepoint, self._wanted = self._wanted, None
        if savepoint is not None and savepoint.timeout_s is not None:
            timeout = savepoint.timeout_s
        self._running = _InProgress(
            checkpoint, now, final, set(self._tasks), {}, timeout, savepoint
        )
        return [Trigger(checkpoint, final, savepoint)]

    def _fail(self, now: float, reason: str) -> list[Decision[Task, State]]:
        assert self._running is not None
        running, self._running = self._running, None
        savepoint = running.savepoint
        if savepoint is not None and savepoint.drain:
            self._wanted, savepoint = savepoint, None
        self._due = now + max(self._schedule.interval, self._schedule.min_pause)
        decisions: list[Decision[Task, State]] = [Abort(running.checkpoint, reason, savepoint)]
        if savepoint is None:
            self.consecutive_failures += 1
        if self.consecutive_failures > self._schedule.tolerable_failures:
            decisions.append(FailJob(self.consecutive_failures, reason))
        elif savepoint is None and self._savepoint_due() and not self._all_ended():
            decisions += self._trigger(now)
        return decisions
