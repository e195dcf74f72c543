"""A standard stream whose reader may be slow, or gone: a pipe that is full, a terminal that is
stopped.

Invariants: `write` never waits, and of what nobody reads the oldest lines are left out; `print`
waits until its text is written, and an interrupted caller goes at once; texts come out whole, in
the order in which they went in. Python's own buffers of the stream are not used: at the end of a
process they would be waited for.
"""

import fcntl
import os
import select
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import TextIOWrapper
from typing import Any, Final, TextIO

from tidelog.concurrency import interruptible
from tidelog.effects import daemon_thread
from tidelog.fork import LockedObjects

LIMIT_BYTES: Final = 1 << 20
"""What nobody reads takes no more memory than this."""
PATIENCE_S: Final = 5.0
"""At its end a process waits so long for a reader that takes nothing."""


@dataclass(eq=False, slots=True)
class _Text:
    data: bytes
    needed: bool
    """Somebody waits until it is written."""
    written: bool = False
    error: OSError | None = None


class Outlet:
    """Stands for a text stream with a file, as `sys.stderr`; a thread writes what it is given."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._file = stream.fileno()
        self._begin_anew()
        _outlets.add(self)

    def _begin_anew(self) -> None:
        self._changed = threading.Condition()
        self._texts: deque[_Text] = deque()
        self._bytes = 0
        self._line = b""
        """The beginning of a line that is not complete."""
        self._left = 0
        """Texts that are not written yet."""
        self._error: OSError | None = None
        """Why a text was not written that nobody waits for."""
        self._works = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)  # encoding, errors, isatty, fileno, buffer

    def write(self, text: str | bytes) -> int:
        """Hand over whole lines, and wait for nothing. Raises the OSError of an earlier text."""
        data = text if isinstance(text, bytes) else self._encoded(text)
        with self._changed:
            error, self._error = self._error, None
            if error is not None:
                raise error
            complete, newline, self._line = (self._line + data).rpartition(b"\n")
            if newline:
                self._put(complete + newline, needed=False)
        return len(text)

    def flush(self) -> None:
        """Hand over a line that is not complete, too."""
        with self._changed:
            self._hand_over_rest()

    def print(self, text: str) -> None:
        """Write, and wait until it is written; raises OSError, UnicodeEncodeError."""
        abandoned = False

        def abandon() -> None:
            nonlocal abandoned
            with self._changed:
                abandoned = True
                self._changed.notify_all()

        data = self._encoded(text)
        with self._changed:
            self._hand_over_rest()
            mine = self._put(data, needed=True)
        with interruptible(abandon), self._changed:
            self._changed.wait_for(lambda: mine.written or mine.error or abandoned)
        if mine.error is not None:
            raise mine.error

    def settle(self) -> None:
        """At the end: wait for the reader while it takes something. Raises OSError."""
        with self._changed:
            self._hand_over_rest()
            while self._left:
                before = self._left
                self._changed.wait_for(lambda left=before: self._left < left, PATIENCE_S)  # type: ignore[misc]
                if self._left == before:
                    return
            error, self._error = self._error, None
        if error is not None:
            raise error

    def _encoded(self, text: str) -> bytes:
        return text.encode(self._stream.encoding or "utf-8", self._stream.errors or "strict")

    def _hand_over_rest(self) -> None:
        if self._line:
            rest, self._line = self._line, b""
            self._put(rest, needed=False)

    def _put(self, data: bytes, *, needed: bool) -> _Text:
        """Queue a text; the lock is held."""
        new = _Text(data, needed)
        self._texts.append(new)
        self._left += 1
        self._bytes += len(data)
        while self._bytes > LIMIT_BYTES and self._drop_oldest(new):
            pass
        if not self._works:
            self._works = True
            daemon_thread(self._work, "tidelog-outlet")
        self._changed.notify_all()
        return new

    def _drop_oldest(self, newest: _Text) -> bool:
        for text in self._texts:
            if not text.needed and text is not newest:
                self._texts.remove(text)
                self._left -= 1
                self._bytes -= len(text.data)
                return True
        return False

    def _work(self) -> None:
        with suppress(OSError):
            self._stream.flush()  # what was written before stands before it
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._texts)
                text = self._texts.popleft()
                self._bytes -= len(text.data)
            try:
                with _alone(self._file):
                    self._write_all(text.data)
                text.written = True
            except OSError as error:
                text.error = error
            with self._changed:
                if text.error is not None and not text.needed:
                    self._error = text.error
                self._left -= 1
                self._changed.notify_all()

    def _write_all(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._file, left) :]
            except BlockingIOError:  # another process has made the file so
                select.select([], [self._file], [])


_outlets: Final[LockedObjects[Outlet]] = LockedObjects(
    lambda each: each._changed,
    Outlet._begin_anew,  # the parent writes what was there
)


@contextmanager
def _alone(file: int) -> Iterator[None]:
    """No other process of a job prints there; its end releases the lock as well."""
    with suppress(OSError):  # not every system locks pipes
        fcntl.lockf(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        with suppress(OSError):
            fcntl.lockf(file, fcntl.LOCK_UN)


def outlet_of(stream: Any) -> Outlet | None:
    """What writes to a stream without waiting for its reader; None for one without a file."""
    if isinstance(stream, Outlet):
        return stream
    if not isinstance(stream, TextIOWrapper):  # such as a panel's, which draws what it is given
        return None
    try:
        return Outlet(stream)
    except (OSError, ValueError):  # in memory, or closed
        return None


def settle(stream: object) -> None:
    """Wait for the reader of an Outlet as `Outlet.settle`; nothing for other streams."""
    if isinstance(stream, Outlet):
        stream.settle()
