"""The checkpoint coordinator: a pure state machine, events in, decisions out.

Invariants:
- at most one checkpoint is in progress, and its id was never used before;
- a checkpoint is stored only when every task acknowledged it, and completed only when stored;
- a decline, a timeout or a storage error discards the whole checkpoint (Carbone et al., 2015);
- the final checkpoint is triggered as soon as all tasks ended, and nothing is triggered after it.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

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


@dataclass(frozen=True, slots=True)
class Store(Generic[Task, State]):
    """Every task acknowledged: write the manifest."""

    checkpoint: CheckpointId
    states: dict[Task, State]
    final: bool


@dataclass(frozen=True, slots=True)
class Abort:
    """Tell the tasks that this checkpoint will not complete."""

    checkpoint: CheckpointId
    reason: str


@dataclass(frozen=True, slots=True)
class Complete:
    """Tell the tasks that this checkpoint is durable: sinks commit."""

    checkpoint: CheckpointId
    final: bool


@dataclass(frozen=True, slots=True)
class FailJob:
    """Too many checkpoints failed in a row."""

    failures: int
    reason: str


Decision = Trigger | Store[Task, State] | Abort | Complete | FailJob


@dataclass(slots=True)
class _InProgress(Generic[Task, State]):
    checkpoint: CheckpointId
    started: float
    final: bool
    missing: set[Task]
    states: dict[Task, State]
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
        self._final_done = False
        self.consecutive_failures = 0

    @property
    def in_progress(self) -> CheckpointId | None:
        """The checkpoint under way."""
        return None if self._running is None else self._running.checkpoint

    @property
    def finished(self) -> bool:
        """The final checkpoint completed."""
        return self._final_done

    def next_event_at(self) -> float | None:
        """When `tick` has something to decide next; None when it waits for events alone."""
        if self._final_done:
            return None
        if self._running is not None:
            late = self._running.started + self._schedule.timeout
            return None if self._running.storing else late
        return self._due

    def tick(self, now: float) -> list[Decision[Task, State]]:
        """Time passed: a checkpoint may be due, or the one in progress late."""
        running = self._running
        if running is not None:
            late = now - running.started >= self._schedule.timeout
            # A manifest under way may already be durable: it is stored or it fails, never aborted.
            if late and not running.storing:
                waiting = ", ".join(sorted(map(str, running.missing)))
                return self._fail(now, f"timed out after {self._schedule.timeout} s: {waiting}")
            return []
        if self._final_done or now < self._due:
            return []
        return self._trigger(now)

    def ended(self, task: Task, now: float) -> list[Decision[Task, State]]:
        """A task has seen the end of its data and run its `finish`."""
        self._ended.add(task)
        idle = self._running is None and not self._final_done
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
        return [Store(checkpoint, running.states, running.final)]

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
        self._final_done = running.final
        self._due = max(running.started + self._schedule.interval, now + self._schedule.min_pause)
        decisions: list[Decision[Task, State]] = [Complete(checkpoint, running.final)]
        if self._all_ended() and not self._final_done:
            decisions += self._trigger(now)
        return decisions

    def _all_ended(self) -> bool:
        return self._ended >= self._tasks

    def _trigger(self, now: float) -> list[Decision[Task, State]]:
        checkpoint = self._next_id
        self._next_id = CheckpointId(checkpoint + 1)
        final = self._all_ended()
        self._running = _InProgress(checkpoint, now, final, set(self._tasks), {})
        return [Trigger(checkpoint, final)]

    def _fail(self, now: float, reason: str) -> list[Decision[Task, State]]:
        assert self._running is not None
        failed = self._running.checkpoint
        self._running = None
        self.consecutive_failures += 1
        self._due = now + max(self._schedule.interval, self._schedule.min_pause)
        decisions: list[Decision[Task, State]] = [Abort(failed, reason)]
        if self.consecutive_failures > self._schedule.tolerable_failures:
            decisions.append(FailJob(self.consecutive_failures, reason))
        return decisions
