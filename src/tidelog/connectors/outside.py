"""Calls into systems outside, which may never answer.

Invariants: a call has a deadline, is named in the log while it waits, and ends when the job that
waits for it is stopped; whichever comes first, the caller gets a StoreUnreachableError that says
so. Whether the call had its effect is then unknown, as after a connection that broke.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from tidelog.concurrency import interruptible
from tidelog.effects import Clock, SystemClock, daemon_thread
from tidelog.errors import StoreUnreachableError
from tidelog.events import Event

logger = logging.getLogger(__name__)

T = TypeVar("T")

ANSWER_S: Final = 120.0
"""How long an answer may take, unless the user says otherwise."""
_SAY_S: Final = 10.0
"""How long it may take before the log names the call, each time twice as long."""
_LOOK_S: Final = 0.25


class Wait:
    """One call under way."""

    def __init__(
        self,
        what: str,
        limit_s: float,
        stop: Callable[[], None],
        now: float,
        say_s: float | None = None,
    ) -> None:
        self.what = what
        self.limit_s = limit_s
        self.started = now
        self.ended_by: str | None = None
        """Why the call was ended before its answer."""
        self._stop = stop
        self._say_at = _SAY_S if say_s is None else say_s

    def look(self, now: float) -> None:
        elapsed = now - self.started
        if self.ended_by is not None:
            self._stop()  # again: the call may have begun to wait only now
        elif elapsed >= self.limit_s:
            self.end(f"none within {self.limit_s:g} s")
        elif elapsed >= self._say_at:
            Event.OUTSIDE_CALL_WAITS.log(
                logger, call=self.what, seconds=elapsed, limit_s=self.limit_s
            )
            self._say_at *= 2

    def goes_on(self) -> None:
        """There was an answer: the time begins anew."""
        self.started = _watch.clock.monotonic()

    def end(self, why: str) -> None:
        if self.ended_by is None:
            self.ended_by = why
            self._stop()


class _Watch:
    """A thread that looks at calls under way, while there are some."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._waits: set[Wait] = set()
        self._any = threading.Event()
        self._lock = threading.Lock()
        self._thread: Any = None

    def add(self, wait: Wait) -> None:
        with self._lock:
            self._waits.add(wait)
            self._any.set()
            if self._thread is None or not self._thread.is_alive():
                self._thread = daemon_thread(self._run, "tidelog-deadlines")

    def remove(self, wait: Wait) -> None:
        with self._lock:
            self._waits.discard(wait)
            if not self._waits:
                self._any.clear()

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            self._any.wait()
            pause.wait(_LOOK_S)
            with self._lock:
                waits = list(self._waits)
            now = self.clock.monotonic()
            for wait in waits:
                wait.look(now)


_watch: Final = _Watch(SystemClock())


@contextmanager
def answered(
    what: str, limit_s: float, stop: Callable[[], None], say_s: float | None = None
) -> Iterator[Wait]:
    """Calls in the block have so long; `stop`, called by another thread, makes them fail. They are
    named in the log after `say_s`.

    Raises StoreUnreachableError for one that was stopped; what else it raises passes through.
    """
    wait = Wait(what, limit_s, stop, _watch.clock.monotonic(), say_s)
    _watch.add(wait)
    try:
        with interruptible(lambda: wait.end("none before the job was stopped")):
            yield wait
    except Exception as error:
        if wait.ended_by is None:
            raise
        raise StoreUnreachableError(
            what,
            expected="an answer",
            found=wait.ended_by,
            action="check that the server answers and that nothing between drops its packets; "
            "answer_s= of the source or sink says how long an answer may take",
        ) from error
    finally:
        _watch.remove(wait)


def bounded(what: str, limit_s: float, call: Callable[[], T], say_s: float | None = None) -> T:
    """The result of a call of a library that knows no deadlines; raises as `answered`.

    Its thread is left behind when it is late, and what it does then may have its effect still.
    """
    done = threading.Event()
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)
        done.set()

    daemon_thread(run, "tidelog-outside")
    with answered(what, limit_s, done.set, say_s):
        done.wait()
        if errors:
            raise errors[0]
        if not results:
            raise TimeoutError
    return results[0]
