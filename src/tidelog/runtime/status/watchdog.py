"""Looks from a thread whether a job's event loop goes on, and says who holds it.

Invariants: it needs nothing of the loop but an answer, so it speaks while nothing else of the job
does; a process that stood still itself, as in a sleeping machine, is not reported.
"""

import asyncio
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final, NamedTuple

from tidelog.effects import Clock, daemon_thread
from tidelog.events import Event

logger = logging.getLogger(__name__)

HELD_S: Final = 5.0
"""A turn of the loop takes milliseconds: one that takes so long is reported."""
_AGAIN_S: Final = 60.0
"""A turn that does not end is reported again after so long."""
_LOOK_S: Final = 1.0

_OURS: Final = "tidelog."
_EXAMPLES: Final = "tidelog.examples"
_CHAIN: Final = "tidelog.runtime.operators.chain"
_SINK: Final = "tidelog.runtime.tasks.sink_output"
_TASKS: Final = "tidelog.runtime.tasks."


class Holder(NamedTuple):
    """What the thread of an event loop is busy with."""

    operator: str
    place: str
    """The function of the user's that was called, or the innermost one, with file and line."""


@contextmanager
def watched_loop(clock: Clock) -> Iterator[None]:
    """Watch the event loop that runs in this thread, within the block."""
    watch = _Watch(clock)
    daemon_thread(watch.run, "tidelog-watch")
    try:
        yield
    finally:
        watch.ended.set()


class _Watch:
    def __init__(self, clock: Clock) -> None:
        self.ended = threading.Event()
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._answered_s = clock.monotonic()

    def run(self) -> None:
        reported_s, looked_s = -_AGAIN_S, self._clock.monotonic()
        while not self.ended.wait(_LOOK_S):
            now_s, before_s = self._clock.monotonic(), looked_s
            looked_s = now_s
            if now_s - before_s > HELD_S / 2:  # this thread stood still as well
                self._answered_s = now_s
            silent_s = now_s - self._answered_s
            if silent_s >= HELD_S and now_s - reported_s >= _AGAIN_S:
                reported_s = now_s
                self._report(silent_s)
            with suppress(RuntimeError):  # the loop was closed in the meantime
                self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        self._answered_s = self._clock.monotonic()

    def _report(self, silent_s: float) -> None:
        if (holder := holder_of(self._thread)) is not None:
            operator, place = holder
            Event.LOOP_HELD.log(logger, operator=operator, seconds=silent_s, place=place)


def holder_of(thread: int) -> Holder | None:
    """Which operator a thread works for, and in which function; None when it has ended."""
    innermost = sys._current_frames().get(thread)
    if innermost is None:
        return None
    called, frame = innermost, innermost.f_back
    while frame is not None and not _is_ours(called):
        if _is_ours(frame):
            break
        called, frame = frame, frame.f_back
    if frame is None:  # none of ours has called it
        called = innermost
    place = _place(called)
    if called is not innermost and not _is_ours(innermost):
        place = f"{place}, at work in {_place(innermost)}"
    return Holder(_operator(innermost), place)


def _is_ours(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__", ""))
    return module.startswith(_OURS) and not module.startswith(_EXAMPLES)


def _place(frame: FrameType) -> str:
    code = frame.f_code
    return f"{code.co_qualname} ({code.co_filename}:{frame.f_lineno})"


def _operator(innermost: FrameType) -> str:
    """The operator that the innermost frame of our own works for, which knows its name."""
    frame: FrameType | None = innermost
    while frame is not None:
        module, variables = str(frame.f_globals.get("__name__", "")), frame.f_locals
        name = variables.get("name")
        if module == _CHAIN and isinstance(name, str):
            return f"operator {name!r}"
        owner = variables.get("self")
        if module == _SINK and isinstance(getattr(owner, "_name", None), str):
            return f"sink {owner._name!r}"  # type: ignore[union-attr]
        if module.startswith(_TASKS) and hasattr(owner, "id"):
            return f"subtask {owner.id}"  # type: ignore[union-attr]
        frame = frame.f_back
    return "a part of the job outside of all operators"
