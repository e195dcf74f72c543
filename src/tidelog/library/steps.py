"""Steps: threads or tasks of a program and the event loop beside it use one state in turn.

An operation (a get, a set) has the lock while it runs, and is refused or waits without the lock. A
step is all changes of one owner, a thread or a task, that are in one checkpoint together. It begins
with the owner's first change. It ends with the outermost block (`with db.step()`); outside of
blocks, which one thread may do, it ends with `advance` or `checkpoint`.

Invariants: a step that its owner cannot end any more is in no checkpoint; while steps are blocked
none begins, so a checkpoint that waits until none is open holds whole steps; the steps of one
database do not block those of another.
"""

import asyncio
import logging
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from threading import get_ident
from typing import Any, Final, TypeVar

from tidelog.concurrency import LiveObjects
from tidelog.effects import hold_thread
from tidelog.errors import ConfigError
from tidelog.events import Event
from tidelog.library.event_loop import LoopLock

T = TypeVar("T")

logger = logging.getLogger(__name__)

_CHANGES_PER_WAKE: Final = 1024
"""Changes after which the event loop is woken to see whether a flush is due."""
_MOMENT_S: Final = 1e-6
"""The system sleeps for some 60 microseconds at least: enough for the loop to be awake."""
_LONGEST_PAUSE_S: Final = 0.02
_LONG_WAIT: Final = 300
"""After so many pauses, some 5 s, a warning says what is waited for."""
_BLOCKED: Final = "the end of a step, or its table to be whole"

_all_steps: "Final[LiveObjects[Steps]]" = LiveObjects()
"""The steps of all databases that this process has open."""


class StepOwner:
    """A thread or a task that works on a state, and its step."""

    __slots__ = ("blocks", "changed", "guards", "has_ended", "name", "step_open")

    def __init__(self, name: str) -> None:
        self.name = name
        self.blocks = 0
        """How many blocks of a step it is in."""
        self.guards: Any = None
        """A weak reference for each block, whose callback is called when Python drops the block."""
        self.step_open = False
        """The owner has an open step, maybe without a change yet; set for asyncio tasks only."""
        self.changed = False
        """The owner has changed state in its open step."""
        self.has_ended = False

    @property
    def in_step(self) -> bool:
        return self.changed or self.step_open


class Steps:
    """The steps of threads, and their operations: each is called with the lock."""

    def __init__(
        self,
        loop_lock: LoopLock,
        wake_loop: Callable[[], float],
        end_error: Callable[[], Exception],
        on_abandoned_step: Callable[[str], None],
    ) -> None:
        """`wake_loop` is called by a caller after many changes, and returns how long it is to wait.
        `end_error` returns what operations raise after the end; it may wait for the end.
        `on_abandoned_step` is called, in any thread, with the reason why nobody can end a step.
        """
        self.lock = loop_lock.lock
        self.closed = False
        """No operation may begin any more."""
        self._on_abandoned_step = on_abandoned_step
        self._loop_lock = loop_lock
        self._wake_loop, self._end_error = wake_loop, end_error
        self._on_last_step_end: Callable[[], object] | None = None
        """Called when the last open step has ended; None unless steps are blocked."""
        self._paused = False
        self._blocks_reads = False
        self._owners: set[StepOwner] = set()
        self._current_thread = 0
        """The thread that may change state without further checks; 0: none."""
        self._current_owner = StepOwner("nobody")
        """The owner that is this thread, or the task that makes a change now."""
        self._loop_owner: StepOwner | None = None
        """The one that makes changes outside of blocks: the program's loop."""
        self._threads = threading.local()
        """Its `end`, set in a thread that owns steps, is the `_EndOfThread` of that thread."""
        self.changes = 0
        """Changes since the event loop was last woken to see whether a flush is due."""

    def read(self, work: Callable[..., T], *args: Any) -> T:
        """An operation that changes nothing."""
        loop_lock = self._loop_lock
        while True:
            with self.lock:
                if not (loop_lock.user or loop_lock.loop_waits or self._blocks_reads):
                    loop_lock.user = work
                    try:
                        return work(*args)
                    finally:
                        loop_lock.user = None
            self._wait(lambda: not self._blocks_reads)

    def change(self, work: Callable[..., object], *args: Any) -> None:
        """An operation that is a part of the caller's step; opens it if need be."""
        loop_lock = self._loop_lock
        while True:
            with self.lock:
                if not (loop_lock.user or loop_lock.loop_waits) and (
                    self._current_thread == get_ident() or self._may_change()
                ):
                    self._current_owner.changed = True
                    loop_lock.user = work
                    try:
                        work(*args)
                    finally:
                        loop_lock.user = None
                    self.changes += 1
                    if self.changes < _CHANGES_PER_WAKE:
                        return
                    self.changes, pause_s = 0, self._wake_loop()
                    break
            self._wait(self._may_change)
        # A thread that gives up the interpreter's lock now and then, and takes it again before any
        # other has woken up, keeps it for ever: who waits for it demands it only where it was held
        # for `sys.getswitchinterval()` without a break. Waking the loop up is such a break.
        hold_thread(max(pause_s, _MOMENT_S))

    def advance(self, positions: dict[Any, Any], partition: Any, position: Any) -> None:
        """Note a position as a part of the caller's step, which it ends outside of blocks."""
        loop_lock = self._loop_lock
        while True:
            with self.lock:
                if not (loop_lock.user or loop_lock.loop_waits) and (
                    self._current_thread == get_ident() or self._may_change()
                ):
                    positions[partition] = position
                    owner = self._current_owner
                    owner.changed = True
                    if not owner.blocks:
                        self._end(owner)
                    return
            self._wait(self._may_change)

    def end_step(self, owner: StepOwner | None = None) -> None:
        """A checkpoint may hold what the owner, by default the caller, has changed."""
        with self.lock:
            self._end(owner or self.this_owner())

    def _end(self, owner: StepOwner) -> None:
        owner.step_open = owner.changed = False
        if owner is not self._loop_owner or self._on_last_step_end is not None:
            self._current_thread = 0
        if self._on_last_step_end is not None and not self.open_steps:
            self._on_last_step_end()

    def this_owner(self) -> StepOwner:
        try:
            end: _EndOfThread = self._threads.end
        except AttributeError:
            owner = StepOwner(f"thread {threading.current_thread().name!r}")
            end = self._threads.end = _EndOfThread(self, owner)
            self._owners.add(owner)
        return end.owner

    def on_owner_end(self, owner: StepOwner) -> None:
        """A thread or task has ended: if its step is open nobody can end it any more."""
        owner.has_ended = True
        if self._current_owner is owner:
            self._current_thread = 0  # a later thread may have the same number
        if owner.in_step:
            self._on_abandoned_step(f"the end of {owner.name}, which has changed something in it")
        else:
            self._owners.discard(owner)

    async def begin_step(self) -> StepOwner:
        """Raises ConfigError: only tasks of asyncio begin a step by `async with`."""
        raise ConfigError(
            "`async with db.step():`",
            expected="a database of tidelog.open_async",
            found="one of threads",
            action="write `with db.step():`, or open it with tidelog.open_async",
        )

    def _may_change(self) -> bool:
        """Whether the caller, who has the lock, may go on at once with its step, or begin one."""
        owner = self.this_owner()
        if not owner.blocks:
            self._check_is_loop_owner(owner)
        if self.closed or self._paused or self._must_wait_to_begin(owner):
            return False
        self._current_thread, self._current_owner = get_ident(), owner
        return True

    def _must_wait_to_begin(self, owner: StepOwner) -> bool:
        # A caller in a step of another database goes on: two of them would wait for each other.
        return (
            self._on_last_step_end is not None
            and not owner.in_step
            and not any(steps.in_step for steps in _all_steps)
        )

    def _check_is_loop_owner(self, owner: StepOwner) -> None:
        if self._loop_owner is None or self._loop_owner.has_ended:
            self._loop_owner = owner
        if self._loop_owner is not owner:
            raise ConfigError(
                "a change of state outside of a step",
                expected=f"it in {self._loop_owner.name}, the program's one loop, which has made "
                "the first such change",
                found=f"one in {owner.name}",
                action="make the change in `with db.step():`, as all threads but one have to",
            )

    def _wait(self, may_go_on: Callable[[], bool]) -> None:
        """Wait without the lock until the operation may be tried again; raises what has closed the
        state, and ConfigError for an operation amid another.
        """
        loop_lock = self._loop_lock
        for pause in count():
            loop_lock.check_between_operations()
            if self.closed or loop_lock.forked:
                raise self._end_error()
            hold_thread(min(pause * _MOMENT_S * 100, _LONGEST_PAUSE_S) or _MOMENT_S)
            with self.lock:
                if not loop_lock.loop_waits and may_go_on():
                    return
            if pause == _LONG_WAIT:
                reason = "room in memory, at the uploads or in a sink" if self._paused else _BLOCKED
                name = threading.current_thread().name
                Event.OPERATION_AWAITED.log(logger, thread=name, reason=reason)

    @property
    def forked(self) -> bool:
        """Whether the caller is in a process that was forked from that of the state."""
        return self._loop_lock.forked

    @property
    def in_step(self) -> bool:
        """Whether the caller's step is open."""
        return self.this_owner().in_step

    # For the event loop.

    def begin(self) -> None:
        """Operations may begin."""
        _all_steps.add(self)

    def wake_loop_at_next_change(self) -> None:
        """Call `wake_loop` after the next change, or after the one that runs now."""
        self.changes = _CHANGES_PER_WAKE - 1

    @property
    def open_steps(self) -> list[str]:
        """The names of the owners whose step is open."""
        return [owner.name for owner in list(self._owners) if owner.in_step]

    def block_steps(self, none_open: Callable[[], object] | None) -> None:
        """Let no step begin, and call `none_open` when the last ends; None: steps may begin."""
        self._on_last_step_end = none_open
        self._update()

    def pause(self, paused: bool) -> None:
        """Let no operation begin until the pause is over."""
        self._paused = paused
        self._update()

    def end(self) -> None:
        """Let no operation begin any more; called in any thread."""
        with self.lock:
            self.closed = True
            self._update()
        _all_steps.discard(self)

    def _update(self) -> None:
        self._current_thread, self._blocks_reads = 0, self.closed or self._paused


class _EndOfThread:
    """Is dropped by Python when the thread ends that it is local to. Nothing else shows this end at
    once, and a later thread may have the same number.
    """

    def __init__(self, steps: Steps, owner: StepOwner) -> None:
        self._steps, self.owner = weakref.ref(steps), owner

    def __del__(self) -> None:
        steps = self._steps()
        if steps is not None and not sys.is_finalizing():
            steps.on_owner_end(self.owner)


class TaskSteps(Steps):
    """The steps of tasks of a program's own event loop.

    All changes are made in blocks. The beginning of a block is awaited, as it may take long; an
    operation in it waits for a turn of tidelog's event loop at most.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._tasks: dict[asyncio.Task[Any], StepOwner] = {}
        self._waiting: list[asyncio.Future[None]] = []
        """One for each task that waits until a step may begin."""

    def this_owner(self) -> StepOwner:
        try:
            task = asyncio.current_task()
        except RuntimeError:  # a thread without an event loop
            task = None
        if task is None:  # it may read, but owns no step
            return StepOwner(f"thread {threading.current_thread().name!r}")
        owner = self._tasks.get(task)
        if owner is None:
            owner = self._tasks[task] = StepOwner(f"task {task.get_name()!r}")
            self._owners.add(owner)
            task.add_done_callback(lambda task: self.on_owner_end(self._tasks.pop(task)))
        return owner

    def _may_change(self) -> bool:
        """As for threads; raises ConfigError outside of a step."""
        owner = self.this_owner()
        if not owner.step_open:
            raise ConfigError(
                "a change of state outside of a step",
                expected="one within `async with db.step():`, by the task that has entered it",
                found=f"one in {owner.name}",
                action="make it in a step: only there it can be awaited that there is room",
            )
        self._current_owner = owner
        return not self.closed

    async def begin_step(self) -> StepOwner:
        """Wait until the calling task may begin a step; at once in a step of its own. Raises what
        has closed the state.
        """
        owner, loop = self.this_owner(), asyncio.get_running_loop()
        while True:
            with self.lock:
                if self.closed or self._loop_lock.forked:
                    break
                if not (self._paused and not owner.step_open) and not self._must_wait_to_begin(
                    owner
                ):
                    owner.step_open = True
                    return owner
                turn = loop.create_future()
                self._waiting.append(turn)
            await turn
        raise self._end_error()

    def _update(self) -> None:
        self._blocks_reads = self.closed
        if self.closed or not (self._paused or self._on_last_step_end is not None):
            waiting, self._waiting = self._waiting, []
            for turn in waiting:
                with suppress(RuntimeError):  # the program's loop has ended
                    turn.get_loop().call_soon_threadsafe(_wake, turn)


def _wake(turn: "asyncio.Future[None]") -> None:
    if not turn.done():
        turn.set_result(None)
