"""Steps: a program's threads or tasks and the event loop next to it work on a state in turn.

Invariants: state is touched with the lock alone, in one operation at a time, and who has to wait
does so without it. A step belongs to one caller, a thread or a task: it begins with the caller's
first change, and ends with the outermost of its blocks (`with db.step()`), or, outside of blocks,
where the program's one loop says so. The step of a caller that has ended, or left its block some
other way, is never captured. While steps are blocked none begins, so that what is captured when
none is open is whole steps. Each database has steps of its own, which block no other's.
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

from tidelog.effects import hold_thread
from tidelog.errors import ConfigError
from tidelog.events import Event
from tidelog.library.event_loop import LoopLock

T = TypeVar("T")

logger = logging.getLogger(__name__)

_LOOK_EVERY: Final = 1024
"""Changes after which the event loop is to see whether a flush is due."""
_MOMENT_S: Final = 1e-6
"""The system sleeps for some 60 microseconds at least: enough for the loop to be awake."""
_LONGEST_PAUSE_S: Final = 0.02
_LONG_WAIT: Final = 300
"""After so many pauses, some 5 s, a warning says what is waited for."""

_all_steps: "Final[weakref.WeakSet[Steps]]" = weakref.WeakSet()
"""Those of all databases that this process has open."""


class Caller:
    """A thread or a task that works on a state, and its step."""

    __slots__ = ("blocks", "changed", "guards", "has_ended", "name", "step_open")

    def __init__(self, name: str) -> None:
        self.name = name
        self.blocks = 0
        """How many blocks of a step it is in."""
        self.guards: Any = None
        """For each of these a weak reference, whose callback tells when it is dropped."""
        self.step_open = False
        """The caller has an open step, though nothing may have changed in it."""
        self.changed = False
        """The caller has changed something in its open step."""
        self.has_ended = False

    @property
    def in_step(self) -> bool:
        return self.changed or self.step_open


class Steps:
    """The steps of threads, and their operations: each is called with the lock."""

    def __init__(
        self,
        shared: LoopLock,
        look: Callable[[], float],
        end_error: Callable[[], Exception],
        abandoned: Callable[[str], None],
    ) -> None:
        """`look` is called by a caller when much was changed, and says how long it is to wait.
        `end_error` gives what operations raise once the state is closed; it may wait for the end.
        `abandoned` is called, anywhere, with what became of a step that nobody ends any more.
        """
        self.lock = shared.lock
        self.closed = False
        """Nobody may touch the state any more, with the lock or without."""
        self._abandoned = abandoned
        self._shared = shared
        self._look, self._end_error = look, end_error
        self._steps_ended: Callable[[], object] | None = None
        """Called when the last open step has ended, while steps are blocked."""
        self._paused = False
        self._busy = False
        """Callers wait also for reads."""
        self._callers: set[Caller] = set()
        self._current = 0
        """The thread that may change state at once, because its step is open or may begin, ..."""
        self._caller = Caller("nobody")
        """... and what it is as a caller."""
        self._loop: Caller | None = None
        """The one that makes changes outside of blocks."""
        self._threads = threading.local()
        """Thread-local: an `_EndOfThread` for each thread that is a caller."""
        self.changes = 0
        """Since the loop looked whether a flush is due."""

    def read(self, work: Callable[..., T], *args: Any) -> T:
        """An operation that changes nothing."""
        shared = self._shared
        while True:
            with self.lock:
                if not (shared.user or shared.loop_waits or self._busy):
                    shared.user = work
                    try:
                        return work(*args)
                    finally:
                        shared.user = None
            self._wait(lambda: not self._busy)

    def change(self, work: Callable[..., object], *args: Any) -> None:
        """An operation that is a part of the caller's step; opens it if need be."""
        shared = self._shared
        while True:
            with self.lock:
                if not (shared.user or shared.loop_waits) and (
                    self._current == get_ident() or self._may_change()
                ):
                    self._caller.changed = True
                    shared.user = work
                    try:
                        work(*args)
                    finally:
                        shared.user = None
                    self.changes += 1
                    if self.changes < _LOOK_EVERY:
                        return
                    self.changes, pause_s = 0, self._look()
                    break
            self._wait(self._may_change)
        # A thread that gives up the interpreter's lock now and then, and takes it again before any
        # other has woken up, keeps it for ever: who waits for it demands it only where it was held
        # for `sys.getswitchinterval()` without a break. Waking the loop up is such a break.
        hold_thread(max(pause_s, _MOMENT_S))

    def advance(self, positions: dict[Any, Any], partition: Any, position: Any) -> None:
        """Note a position as a part of the caller's step, which it ends outside of blocks."""
        shared = self._shared
        while True:
            with self.lock:
                if not (shared.user or shared.loop_waits) and (
                    self._current == get_ident() or self._may_change()
                ):
                    positions[partition] = position
                    caller = self._caller
                    caller.changed = True
                    if not caller.blocks:
                        self._end(caller)
                    return
            self._wait(self._may_change)

    def end_step(self, caller: Caller | None = None) -> None:
        """What the caller has changed may be part of a checkpoint."""
        with self.lock:
            self._end(caller or self.this_caller())

    def _end(self, caller: Caller) -> None:
        caller.step_open = caller.changed = False
        if caller is not self._loop or self._steps_ended is not None:
            self._current = 0
        if self._steps_ended is not None and not self.open_steps:
            self._steps_ended()

    def this_caller(self) -> Caller:
        try:
            end: _EndOfThread = self._threads.end
        except AttributeError:
            caller = Caller(f"thread {threading.current_thread().name!r}")
            end = self._threads.end = _EndOfThread(self, caller)
            self._callers.add(caller)
        return end.caller

    def caller_ended(self, caller: Caller) -> None:
        """A thread or task has ended: if its step is open nobody can end it any more."""
        caller.has_ended = True
        if self._caller is caller:
            self._current = 0  # a later thread may have the same number
        if caller.in_step:
            self._abandoned(f"the end of {caller.name}, which has changed something in it")
        else:
            self._callers.discard(caller)

    async def begin_step(self) -> Caller:
        """Raises ConfigError: only tasks of asyncio begin a step by `async with`."""
        raise ConfigError(
            "`async with db.step():`",
            expected="a database of tidelog.open_async",
            found="one of threads",
            action="write `with db.step():`, or open it with tidelog.open_async",
        )

    def _may_change(self) -> bool:
        """Whether the caller, who has the lock, may go on at once with its step, or begin one."""
        caller = self.this_caller()
        if not caller.blocks:
            self._refuse_all_but_one(caller)
        if self.closed or self._paused or self._must_not_begin(caller):
            return False
        self._current, self._caller = get_ident(), caller
        return True

    def _must_not_begin(self, caller: Caller) -> bool:
        # In no database: two that wait for each other's steps would wait for ever.
        return (
            self._steps_ended is not None
            and not caller.in_step
            and not any(steps.in_step for steps in list(_all_steps))
        )

    def _refuse_all_but_one(self, caller: Caller) -> None:
        if self._loop is None or self._loop.has_ended:
            self._loop = caller
        if self._loop is not caller:
            raise ConfigError(
                "a change of state outside of a step",
                expected=f"it in {self._loop.name}, the program's one loop, which has made the "
                "first such change",
                found=f"one in {caller.name}",
                action="make the change in `with db.step():`, as all threads but one have to",
            )

    def _wait(self, may_go_on: Callable[[], bool]) -> None:
        """Wait without the lock until the operation may be tried again; raises what has closed the
        state, and ConfigError for an operation amid another.
        """
        shared = self._shared
        for pause in count():
            shared.refuse_amid()
            if self.closed or shared.forked:
                raise self._end_error()
            hold_thread(min(pause * _MOMENT_S * 100, _LONGEST_PAUSE_S) or _MOMENT_S)
            with self.lock:
                if not shared.loop_waits and may_go_on():
                    return
            if pause == _LONG_WAIT:
                reason = "room in memory, at the uploads or in a sink" if self._paused else "a step"
                name = threading.current_thread().name
                Event.OPERATION_AWAITED.log(logger, thread=name, reason=reason)

    @property
    def forked(self) -> bool:
        """Whether the caller is in a process that was forked from that of the state."""
        return self._shared.forked

    @property
    def in_step(self) -> bool:
        """Whether the caller's step is open."""
        return self.this_caller().in_step

    # What follows is for the loop.

    def begin(self) -> None:
        """Callers may work from now on."""
        _all_steps.add(self)

    def look_at_next(self) -> None:
        """Call `look` with the next change, or after the present one."""
        self.changes = _LOOK_EVERY - 1

    @property
    def open_steps(self) -> list[str]:
        """The names of the threads or tasks whose step is open."""
        return [caller.name for caller in list(self._callers) if caller.in_step]

    def block_steps(self, none_open: Callable[[], object] | None) -> None:
        """Callers without an open step begin none from now on; `none_open` is called by the one
        that ends the last step. None: steps may begin again.
        """
        self._steps_ended = none_open
        self._update()

    def pause(self, paused: bool) -> None:
        """No caller works on the state until the pause is over, in a step or not."""
        self._paused = paused
        self._update()

    def end(self) -> None:
        """Nobody touches the state any more; called anywhere."""
        with self.lock:
            self.closed = True
            self._update()
        _all_steps.discard(self)

    def _update(self) -> None:
        self._current, self._busy = 0, self.closed or self._paused


class _EndOfThread:
    """Notices the end of the thread that has made it: Python drops what is local to a thread then.

    Nothing else would say so at once, and a later thread may have the same number.
    """

    def __init__(self, steps: Steps, caller: Caller) -> None:
        self._steps, self.caller = weakref.ref(steps), caller

    def __del__(self) -> None:
        steps = self._steps()
        if steps is not None and not sys.is_finalizing():
            steps.caller_ended(self.caller)


class TaskSteps(Steps):
    """The steps of tasks of a program's own event loop.

    What would wait for long is awaited, at the beginning of a block; whatever else takes the lock
    waits for a turn of tidelog's loop at most. All changes are made in blocks.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._tasks: dict[asyncio.Task[Any], Caller] = {}
        self._waiting: list[asyncio.Future[None]] = []
        """For each task that waits until a step may begin."""

    def this_caller(self) -> Caller:
        try:
            task = asyncio.current_task()
        except RuntimeError:  # a thread without an event loop
            task = None
        if task is None:  # a caller in no step
            return Caller(f"thread {threading.current_thread().name!r}")
        caller = self._tasks.get(task)
        if caller is None:
            caller = self._tasks[task] = Caller(f"task {task.get_name()!r}")
            self._callers.add(caller)
            task.add_done_callback(self._task_ended)
        return caller

    def _task_ended(self, task: "asyncio.Task[Any]") -> None:
        self.caller_ended(self._tasks.pop(task))

    def _may_change(self) -> bool:
        """As for threads; raises ConfigError outside of a step."""
        caller = self.this_caller()
        if not caller.step_open:
            raise ConfigError(
                "a change of state outside of a step",
                expected="one within `async with db.step():`, by the task that has entered it",
                found=f"one in {caller.name}",
                action="make it in a step: only there it can be awaited that there is room",
            )
        self._caller = caller
        return not self.closed

    async def begin_step(self) -> Caller:
        """Wait until the calling task may begin a step; at once in a step of its own. Raises what
        has closed the state.
        """
        caller, loop = self.this_caller(), asyncio.get_running_loop()
        while True:
            with self.lock:
                if self.closed or self._shared.forked:
                    break
                if not (self._paused and not caller.step_open) and not self._must_not_begin(caller):
                    caller.step_open = True
                    return caller
                turn = loop.create_future()
                self._waiting.append(turn)
            await turn
        raise self._end_error()

    def _update(self) -> None:
        self._busy = self.closed
        if self.closed or not (self._paused or self._steps_ended is not None):
            waiting, self._waiting = self._waiting, []
            for turn in waiting:
                with suppress(RuntimeError):  # the program's loop has ended
                    turn.get_loop().call_soon_threadsafe(_wake, turn)


def _wake(turn: "asyncio.Future[None]") -> None:
    if not turn.done():
        turn.set_result(None)
