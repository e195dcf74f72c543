"""The checkpoint coordinator: a pure state machine, events in, decisions out.

Invariants:
- at most one checkpoint is in progress, and its id was never used before;
- a checkpoint is stored only when every task of its plan acknowledged it, and completed only when
  stored; a task whose finish it contains has exited for all later plans;
- a decline, a timeout or a storage error discards the whole checkpoint (Carbone et al., 2015);
- the final checkpoint is the one under way when all tasks have ended if it contains the finish of
  all, else one triggered at once; nothing is triggered after it;
- when nothing has changed since the last checkpoint and nobody waits for one, none is due before
  the next interval ends, and when only positions have, none before the idle interval ends;
- every task that has not exited takes part, and gets the barrier either from the coordinator or
  from a predecessor that takes part (Flink's FLIP-147);
- one savepoint at most is asked for at a time; it is the next checkpoint, and its failure is
  answered and is none of the failures in a row. A drain has no way back: the final checkpoint is
  its savepoint, however often it has to be tried;
- no checkpoint holds a part of a drain: none begins between its request and the end of all tasks,
  so a job that fails meanwhile resumes as if nobody had asked;
- sources end when the state before the end is durable: it is captured by barriers as a checkpoint
  is, but is part of the manifests after it, and has none of its own;
- where a job had ended, no checkpoint is due before a source has found something to read.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Set
from typing import Final, Generic

import msgspec

from tidelog.checkpoint.config import Change, CheckpointConfig
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
    State,
    Store,
    Task,
    Trigger,
)
from tidelog.checkpoint.ending import SourceEnds
from tidelog.ids import CheckpointId

RETRY_S: Final = 1.0
"""A checkpoint that somebody waits for and that failed is tried again after so long at most."""


class Plan(msgspec.Struct, Generic[Task], frozen=True):
    """Who takes part in one checkpoint: every task that has not exited."""

    starts_at: frozenset[Task]
    """Get the barrier from the coordinator, because all their predecessors have exited."""
    takes_part: frozenset[Task]
    """Have to acknowledge."""


def make_plan(predecessors: Mapping[Task, Collection[Task]], exited: Set[Task]) -> Plan[Task]:
    """The plan for tasks with their direct predecessors, of which some have exited."""
    running = frozenset(predecessors.keys() - exited)
    starts_at = frozenset(task for task in running if exited >= set(predecessors[task]))
    return Plan(starts_at, running)


class _InProgress(msgspec.Struct, Generic[Task, State]):
    checkpoint: CheckpointId
    started: float
    final: bool
    plan: Plan[Task]
    pending: set[Task]
    timeout: float
    savepoint: SavepointRequest | None
    before_end: bool
    """The state before the end is captured: no manifest is written for it."""
    states: dict[Task, State] = msgspec.field(default_factory=dict)
    finished: set[Task] = msgspec.field(default_factory=set)
    storing: bool = False


class Coordinator(Generic[Task, State]):
    """Decides over the checkpoints of one running job."""

    def __init__(
        self,
        predecessors: Mapping[Task, Collection[Task]],
        schedule: CheckpointConfig,
        next_id: CheckpointId,
        now: float,
        exited: Iterable[Task] = (),
        ends: SourceEnds[Task] | None = None,
    ) -> None:
        self._predecessors = predecessors
        self._schedule = schedule
        self._next_id = next_id
        self._due = now + schedule.interval
        self._began = now
        """When the last durable checkpoint began, or else this run."""
        self._running: _InProgress[Task, State] | None = None
        self._exited = set(exited)
        self._ended_tasks = set(self._exited)
        """Tasks that have handled all their data, those that exited since included."""
        self.finished = self._exited >= predecessors.keys()
        """The final checkpoint completed, or the savepoint that the job was to stop with."""
        self._hurried = False
        """Somebody waits for a checkpoint that begins after the one under way."""
        self._promised: CheckpointId | None = None
        """Somebody waits for a checkpoint from this id on."""
        self._savepoint: SavepointRequest | None = None
        """The savepoint that is asked for and not triggered yet."""
        self._ends = ends or SourceEnds()
        self.consecutive_failures = 0

    @property
    def in_progress(self) -> CheckpointId | None:
        """The checkpoint under way."""
        return None if self._running is None else self._running.checkpoint

    @property
    def progress(self) -> tuple[int, int]:
        """(tasks whose part of the checkpoint under way is durable, all tasks that take part)."""
        if self._running is None:
            return 0, len(self._predecessors)
        return len(self._running.states), len(self._running.states) + len(self._running.pending)

    def next_event_at(self) -> float | None:
        """When `tick` has something to decide next; None when it waits for events alone."""
        if self.finished:
            return None
        if self._running is not None:
            late = self._running.started + self._running.timeout
            return None if self._running.storing else late
        if self._ends.unchanged or (self._draining() and not self._ends.ready):
            return None
        return self._due

    def asks_for_change(self, now: float) -> bool:
        """Whether a checkpoint is due that `tick` takes only if something has changed."""
        due = self._running is None and not self.finished and now >= self._due
        return due and not self._ends.unchanged and not self._awaited()

    def tick(self, now: float, *, change: Change = Change.STATE) -> list[Decision[Task, State]]:
        """Time passed: a checkpoint may be due, or the one in progress late.

        `change` is what one that is due now would hold beyond the last one.
        """
        running = self._running
        if running is not None:
            # The same sum as in `next_event_at`: a rounding error between them would spin.
            late = now >= running.started + running.timeout
            # A manifest under way may already be durable: it is stored or it fails, never aborted.
            if late and not running.storing:
                waiting = ", ".join(sorted(map(str, running.pending)))
                return self._fail(now, f"timed out after {running.timeout} s: {waiting}")
            return []
        if self.finished or now < self._due or self._ends.unchanged:
            return []
        needed_at = self._needed_at(now, change)
        if needed_at > now and not self._awaited():
            self._due = min(now + self._schedule.interval, needed_at)
            return []
        return self._trigger(now)

    def savepoint(self, request: SavepointRequest, now: float) -> list[Decision[Task, State]]:
        """Somebody asks for a savepoint; it comes as soon as no other checkpoint is under way."""
        running = self._running
        if self.finished or (running is not None and running.final):
            return [Refuse(request, "the job has reached its end")]
        other = self._savepoint or (running.savepoint if running is not None else None)
        if other is not None:
            return [Refuse(request, f"savepoint {other.name!r} is under way")]
        self._savepoint = request
        if request.drain and not self._all_ended():
            return [Drain(), *self._begin_end(now)]
        return self._trigger(now) if running is None else []

    def hurry(self, now: float) -> tuple[CheckpointId, list[Decision[Task, State]]]:
        """Somebody waits for a checkpoint of what is there now: the id that it has at least."""
        if self._promised is None:
            self._promised = self._next_id
        if self._running is None and not self.finished and not self._ends.unchanged:
            return self._next_id, self._trigger(now)
        self._hurried = True
        return self._next_id, []

    def found_input(self) -> None:
        """A source of a job that had ended has found something to read."""
        self._ends.found_input()

    def at_end(self, task: Task, now: float) -> list[Decision[Task, State]]:
        """A task has handled all of its input; a source waits until it may end."""
        ending = self._ends.at_end(task)
        return [End(ending)] if ending else self._begin_end(now)

    def _begin_end(self, now: float) -> list[Decision[Task, State]]:
        """All tasks may have handled all of their input: the state before the end is captured."""
        if self._running is not None or self.finished or not self._ends.ready:
            return []
        if self._ends.unchanged and self._savepoint is None:
            self.finished = True
            return [NothingNew()]
        return self._trigger(now)

    def ended(self, task: Task, now: float) -> list[Decision[Task, State]]:
        """A task has seen the end of its data and run its `finish`."""
        self._ended_tasks.add(task)
        idle = self._running is None and not self.finished
        return self._trigger(now) if idle and self._all_ended() else []

    def acknowledged(
        self, checkpoint: CheckpointId, task: Task, state: State, *, finished: bool = False
    ) -> list[Decision[Task, State]]:
        """A task's snapshot is durable; `finished`: the end of its data is part of it."""
        running = self._running
        if running is None or running.checkpoint != checkpoint or task not in running.pending:
            return []
        running.pending.discard(task)
        running.states[task] = state
        if finished:
            running.finished.add(task)
        if running.pending:
            return []
        running.storing = True
        if running.before_end:
            return [BeforeEnd(checkpoint, running.states)]
        final = self._all_finish(running)
        return [Store(checkpoint, running.states, final, running.savepoint)]

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
        self._running, self._began = None, running.started
        self.consecutive_failures = 0
        self._ends.found_input()
        if self._promised is not None and self._promised <= checkpoint:
            self._promised = None
        self.finished = running.final or (running.savepoint is not None and running.savepoint.stop)
        self.finished |= self._all_finish(running) and self._savepoint is None
        exited = self._exits(running)
        self._exited.update(exited)
        self._ended_tasks.update(exited)
        self._due = max(running.started + self._schedule.interval, now + self._schedule.min_pause)
        decisions: list[Decision[Task, State]] = [
            Complete(checkpoint, self.finished, exited, running.savepoint)
        ]
        if not self.finished and (self._due_now() or self._hurried):
            decisions += self._trigger(now)
        return decisions

    def captured(self, checkpoint: CheckpointId, now: float) -> list[Decision[Task, State]]:
        """The state before the end is kept for the manifests to come."""
        running = self._running
        assert running is not None and running.checkpoint == checkpoint and running.before_end
        self._running = None
        self.consecutive_failures = 0
        if self._savepoint_due() and self._savepoint is not None and self._savepoint.stop:
            return self._trigger(now)  # asked for meanwhile: the job stops before the end
        decisions: list[Decision[Task, State]] = [End(self._ends.captured())]
        if self._savepoint_due() or self._hurried:
            decisions += self._trigger(now)
        return decisions

    def _awaited(self) -> bool:
        """Somebody waits for the next checkpoint, whatever it holds."""
        return self._promised is not None or self._due_now()

    def _due_now(self) -> bool:
        """The next checkpoint begins as soon as it may: for a savepoint, or at the end."""
        return self._savepoint_due() or self._all_ended() or self._ends.ready

    def _needed_at(self, now: float, change: Change) -> float:
        """When a checkpoint is to be taken for what has changed."""
        match change:
            case Change.NONE if self._schedule.idle_interval > 0:
                return math.inf
            case Change.POSITION:
                return self._began + self._schedule.idle_interval
            case _:
                return now

    def _savepoint_due(self) -> bool:
        """A savepoint is asked for that need not wait for the end of the data."""
        return self._savepoint is not None and not self._draining()

    def _draining(self) -> bool:
        """Sources were told that their data ends here, and not all tasks have followed yet."""
        return self._savepoint is not None and self._savepoint.drain and not self._all_ended()

    def _exits(self, running: _InProgress[Task, State]) -> dict[Task, State]:
        """The tasks that exit with a checkpoint that completed."""
        if self.finished:
            return running.states
        # Later checkpoints refer to what a subtask left, and a savepoint is the user's to delete;
        # one that is asked for is to hold the state of all.
        if running.savepoint is not None or self._savepoint is not None:
            return {}
        return {task: state for task, state in running.states.items() if task in running.finished}

    def _all_ended(self) -> bool:
        return self._ended_tasks >= self._predecessors.keys()

    def _all_finish(self, running: _InProgress[Task, State]) -> bool:
        return running.finished == running.plan.takes_part

    def _trigger(self, now: float) -> list[Decision[Task, State]]:
        """Begin a checkpoint; none while the job drains, for `ended` begins the next one."""
        before_end = self._ends.ready and not self._savepoint_due()
        if before_end and self._savepoint is not None and self._savepoint.format == "canonical":
            # Its manifest names no object that another one may drop, so it has one state alone.
            return [End(self._ends.captured())]
        if self._draining() and not before_end:
            return []
        self._hurried = False
        checkpoint = self._next_id
        self._next_id = CheckpointId(checkpoint + 1)
        final = self._all_ended()
        savepoint, timeout = None, self._schedule.timeout
        if self._savepoint_due():
            savepoint, self._savepoint = self._savepoint, None
        if savepoint is not None and savepoint.timeout_s is not None:
            timeout = savepoint.timeout_s
        plan = make_plan(self._predecessors, self._exited)
        pending = set(plan.takes_part)
        self._running = _InProgress(
            checkpoint, now, final, plan, pending, timeout, savepoint, before_end
        )
        return [Trigger(checkpoint, final, plan.starts_at, savepoint, before_end)]

    def _fail(self, now: float, reason: str) -> list[Decision[Task, State]]:
        assert self._running is not None
        running, self._running = self._running, None
        savepoint = running.savepoint
        if savepoint is not None and savepoint.drain:
            self._savepoint, savepoint = savepoint, None
        pause = self._schedule.interval
        if self._promised is not None or self._all_ended() or self._ends.ready:
            # Who waits, for this or for the end, is not left waiting for a long interval.
            pause = min(pause, RETRY_S)
        self._due = now + max(pause, self._schedule.min_pause)
        decisions: list[Decision[Task, State]] = [Abort(running.checkpoint, reason, savepoint)]
        if savepoint is None:
            self.consecutive_failures += 1
        if self.consecutive_failures > self._schedule.tolerable_failures:
            decisions.append(FailJob(self.consecutive_failures, reason))
        elif savepoint is None and self._savepoint_due() and not self._all_ended():
            decisions += self._trigger(now)
        return decisions
