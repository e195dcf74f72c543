"""The ends of `tidelog` and `python -m tidelog` that no command sees to: an interrupt while the
command is still imported, and threads that are left when it is done.

Imports next to nothing: an interrupt before this is Python's own, with its traceback.
"""

import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import Final

_LEAVE_S: Final = 2.0


def end_at_once(number: int, frame: FrameType | None) -> None:
    """For an interrupt while the command is still imported, and for SIGTERM to the first process of
    a container, which gets no default actions of signals.
    """
    os._exit(128 + number)


def end_soon(code: int) -> None:
    """Python waits for the threads of its pools before it ends: a request to a store that does not
    answer would keep the process until its own deadline, and nobody waits for it any more.
    """
    from threading import Timer  # noqa: PLC0415

    def end() -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)

    timer = Timer(_LEAVE_S, end)
    timer.daemon = True
    timer.start()


def end_when_interrupted() -> None:
    """From now on; not where interrupts are ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)
