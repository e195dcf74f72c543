"""Child processes: each measured run gets a fresh one, so neither heap nor caches carry over.

Invariants: a child does one call at a time; what a child prints goes where its output was directed;
killing a child that has a process group of its own kills all that it started.
"""

import contextlib
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self, TypeVar

T = TypeVar("T")
_SPAWN = multiprocessing.get_context("spawn")
_GRACE_S = 5.0


class ChildError(Exception):
    """A child raised, or ended without an answer; the text is its traceback or how it ended."""


class Child:
    """A process that was started fresh and makes the calls it is given."""

    def __init__(self, *, output: Path | None = None, own_group: bool = False) -> None:
        self._calls, theirs = _SPAWN.Pipe()
        self._own_group = own_group
        self._process = _SPAWN.Process(target=_serve, args=(theirs, output, own_group))
        self._process.start()
        # Only the child holds the other end now, so its death ends the wait.
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Begin to call an importable function."""
        # One that has ended already is noticed by `result`.
        with contextlib.suppress(BrokenPipeError):
            self._calls.send((function, args, kwargs))

    def wait(self, seconds: float | None) -> bool:
        """Wait at most so long, or for ever; whether there is an answer."""
        return bool(self._calls.poll(seconds))

    def result(self) -> Any:
        """What the function returned; raises ChildError with its traceback."""
        try:
            fine, found = self._calls.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            raise ChildError(f"the process ended with {self._process.exitcode}") from None
        if not fine:
            raise ChildError(found)
        return found

    def close(self) -> None:
        """Let it end by itself, and wait until it has; what does not end in time is killed."""
        self._calls.close()
        self._process.join(_GRACE_S)
        self.kill()

    def kill(self) -> None:
        """End the process, politely first; nothing if it has ended."""
        if self._process.is_alive():
            self._signal(signal.SIGTERM)
            self._process.join(_GRACE_S)
        # What it started may outlive it, and have its group.
        if self._own_group or self._process.is_alive():
            self._signal(signal.SIGKILL)
        self._process.join()

    def _signal(self, number: signal.Signals) -> None:
        pid = self._process.pid
        assert pid is not None
        if self._own_group:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, number)
        # Also alone: at its very start a child has no group yet.
        if self._process.is_alive():
            os.kill(pid, number)


def in_child(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call an importable function in a fresh process; raises ChildError when it raises."""
    with Child() as child:
        child.call(function, *args, **kwargs)
        found: T = child.result()
        child.close()
        return found


def _serve(calls: Connection, output: Path | None, own_group: bool) -> None:
    """Answer calls until the other end is closed."""
    if own_group:
        os.setsid()
    if output is not None:
        _redirect(output)
    with contextlib.suppress(EOFError):
        while True:
            function, args, kwargs = calls.recv()
            try:
                found = (True, function(*args, **kwargs))
            except Exception:
                # Errors cross the border as text: not every class can be rebuilt there.
                found = (False, traceback.format_exc())
            calls.send(found)


def _redirect(output: Path) -> None:
    """Below Python too: a JVM writes to the descriptors."""
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
