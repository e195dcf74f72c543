"""What tasks report of checkpoints, and what users ask for: savepoints and their answers.

Invariants: every report goes to the coordinator at once, and what it decides waits here for the
driver, in order; every request is answered once, at the latest when the job ends; no savepoint gets
the name of another one in the store.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, count
from typing import Protocol

from tidelog.checkpoint.config import Change
from tidelog.checkpoint.coordinator import Coordinator
from tidelog.checkpoint.decisions import Decision, SavepointRequest, check_name
from tidelog.checkpoint.manifest import Checkpoint, Savepoint, SubtaskState
from tidelog.effects import Clock, wait_for
from tidelog.errors import CheckpointFailedError, ConfigError, SavepointFailedError
from tidelog.events import Event
from tidelog.ids import CheckpointId, Slot, SubtaskId
from tidelog.runtime.channels.messages import Barrier

logger = logging.getLogger(__name__)


class DrivenTask(Protocol):
    """The port for a task of this process or of another one."""

    id: SubtaskId
    exited: bool

    async def change(self) -> Change: ...
    def trigger(self, barrier: Barrier) -> None: ...
    def begin(self) -> None: ...
    def drain(self) -> None: ...
    def end(self) -> None: ...
    def abort(self, checkpoint: CheckpointId) -> None: ...
    async def complete(self, checkpoint: CheckpointId) -> None: ...
    def leave(self) -> None: ...


async def change_of(tasks: Iterable[DrivenTask]) -> Change:
    """What a checkpoint would hold that the last durable one does not.

    Tasks are asked one after the other, and workers answer for a moment that has passed: what comes
    meanwhile is part of the checkpoint an interval later.
    """
    change = Change.NONE
    for task in tasks:
        if change is not Change.STATE and not task.exited:
            change = max(change, await task.change())
    return change


@dataclass(slots=True)
class Reports:
    """What tasks report to (`CheckpointListener`): the coordinator's decisions on it."""

    coordinator: Coordinator[SubtaskId, SubtaskState]
    clock: Clock
    kept_aligned: str | None = None
    """Why barriers do not overtake although the configuration lets them."""
    decisions: deque[Decision[SubtaskId, SubtaskState]] = field(default_factory=deque)
    """Those that are not carried out yet."""
    at_end_tasks: set[SubtaskId] = field(default_factory=set)
    """Tasks that have handled all of their input since the start."""
    splits: dict[str, int] = field(default_factory=dict)
    """How many splits each source has found that has read all of its input."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def acknowledged(self, checkpoint: CheckpointId, task: SubtaskId, state: SubtaskState) -> None:
        finished = state.finished
        self.decide(self.coordinator.acknowledged(checkpoint, task, state, finished=finished))

    def declined(self, checkpoint: CheckpointId, reason: str) -> None:
        self.decide(self.coordinator.declined(checkpoint, reason, self.clock.monotonic()))

    def found_input(self) -> None:
        self.coordinator.found_input()
        self.decide(())

    def at_end(self, task: SubtaskId, splits: int | None = None) -> None:
        self.at_end_tasks.add(task)
        if splits is not None:
            self.splits[task.operator] = splits
        self.decide(self.coordinator.at_end(task, self.clock.monotonic()))

    def ended(self, task: SubtaskId) -> None:
        self.at_end_tasks.add(task)
        self.decide(self.coordinator.ended(task, self.clock.monotonic()))

    def keep_aligned(self, reason: str) -> None:
        Event.BARRIERS_STAY_ALIGNED.log(logger, reason=reason)
        self.kept_aligned = reason

    def decide(self, decisions: Iterable[Decision[SubtaskId, SubtaskState]]) -> None:
        """Let the driver carry these out."""
        self.decisions.extend(decisions)
        self._changed.set()

    async def wait(self) -> None:
        """Wait until something happened or the coordinator's next deadline has come."""
        self._changed.clear()
        if self.decisions:
            return
        due = self.coordinator.next_event_at()
        remaining = None if due is None else max(0.0, due - self.clock.monotonic())
        await wait_for(self._changed, self.clock, remaining)


@dataclass(slots=True)
class CheckpointRequests:
    """Who waits for a checkpoint of a job."""

    job: str
    _waiting: list[tuple[CheckpointId, asyncio.Future[Checkpoint]]] = field(default_factory=list)
    """The first checkpoint that will do, and the answer."""

    def ask(self, first: CheckpointId) -> asyncio.Future[Checkpoint]:
        """A future for the checkpoint of this id, or a later one."""
        answer: asyncio.Future[Checkpoint] = asyncio.get_running_loop().create_future()
        self._waiting.append((first, answer))
        return answer

    def completed(self, checkpoint: CheckpointId, entry: Checkpoint) -> None:
        """Answer who waits for this checkpoint or an earlier one."""
        for first, answer in self._waiting:
            if first <= checkpoint and not answer.done():
                answer.set_result(entry)
        self._waiting = [request for request in self._waiting if not request[1].done()]

    def ended(self) -> None:
        """The job has ended: all requests that are left fail."""
        for _, answer in self._waiting:
            if not answer.done():
                answer.set_exception(self.refusal())

    def refusal(self) -> CheckpointFailedError:
        """The error for who asks after the end of the job, or waits then."""
        return CheckpointFailedError(
            f"a checkpoint of {self.job!r}",
            expected="to be completed",
            found="the end of the job",
            action="see why it ended; what was durable before is",
        )


@dataclass(slots=True)
class Savepoints:
    """The requests of one incarnation for savepoints."""

    stopped: Savepoint | None = None
    """The savepoint that the job has stopped with."""
    _waiting: dict[SavepointRequest, asyncio.Future[Savepoint]] = field(default_factory=dict)
    _savepoints: dict[str, Savepoint] = field(default_factory=dict)
    """The newest savepoint of each name that there is or was."""

    def known(self, checkpoints: Iterable[Checkpoint]) -> None:
        """Account for checkpoints that exist."""
        for entry in checkpoints:
            if isinstance(entry, Savepoint):
                self._savepoints[entry.name] = entry

    def name(self, requested_name: str | None, now_ms: int, retained: Container[Slot]) -> str:
        """The requested name, or a new one; raises ConfigError if invalid or `retained`."""
        slots_by_name = {
            name: savepoint.slot
            for name, savepoint in self._savepoints.items()
            if savepoint.slot in retained
        }
        if requested_name is None:
            now = datetime.fromtimestamp(now_ms / 1000, UTC)
            first = f"savepoint-{now:%Y%m%d-%H%M%S}"
            names = chain([first], (f"{first}-{number}" for number in count(2)))
            return next(name for name in names if name not in slots_by_name)
        if check_name(requested_name) in slots_by_name:
            raise ConfigError(
                f"savepoint name {requested_name!r}",
                expected="a name that no other savepoint of this store has",
                found=f"it is that of checkpoint {slots_by_name[requested_name]}",
                action="choose another name",
            )
        return requested_name

    def ask(self, request: SavepointRequest) -> asyncio.Future[Savepoint]:
        """A future for the answer to a request that is about to be made."""
        answer = asyncio.get_running_loop().create_future()
        self._waiting[request] = answer
        return answer

    def completed(self, request: SavepointRequest) -> None:
        """The savepoint is durable, and sinks have committed it."""
        entry = self._savepoints[request.name]
        if request.stop:
            self.stopped = entry
        answer = self._waiting.pop(request, None)
        if answer is not None and not answer.done():
            answer.set_result(entry)

    def failed(self, request: SavepointRequest, reason: str) -> None:
        """The savepoint was refused or given up; the job goes on."""
        action = (
            "the job goes on; remove the cause and ask again, under another name if "
            "`tidelog checkpoints list URL` shows this one all the same"
        )
        self._fail(request, "to be completed", reason, action)

    def ended(self) -> None:
        """The job has ended: all requests that are left fail."""
        action = (
            "see what the job said, and whether `tidelog checkpoints list URL` shows the "
            "savepoint; the next start resumes from the newest checkpoint"
        )
        for request in list(self._waiting):
            self._fail(request, "a running job", "the job ended before it was done", action)

    def _fail(self, request: SavepointRequest, expected: str, found: str, action: str) -> None:
        answer = self._waiting.pop(request, None)
        if answer is not None and not answer.done():
            what = f"savepoint {request.name!r}"
            error = SavepointFailedError(what, expected=expected, found=found, action=action)
            answer.set_exception(error)
            answer.exception()  # without a client asyncio would complain
