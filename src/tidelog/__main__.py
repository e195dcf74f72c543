"""`tidelog` and `python -m tidelog`: the command line.

Invariant: an interrupt ends it with code 130, from its first moment on: nothing is lost before a
command begins, and commands see to what they do.
"""

import gc
import os
import signal
import sys
from types import FrameType
from typing import Final

_NEW_OBJECTS: Final = 50_000
"""After so many the garbage collector looks at them, which by default it does after each 700:
modules stay, and records of several buffers are gone before it would find that they are in use."""


def end_at_once(number: int, frame: FrameType | None) -> None:
    """For an interrupt while the command is still imported, and for SIGTERM to the first process of
    a container, which gets no default actions of signals.
    """
    os._exit(128 + number)


def collect_rarely() -> None:
    """Let the garbage collector look at new objects as seldom as in `tidelog run`."""
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])


def start() -> None:
    """Run the command that the arguments name."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored
        signal.signal(signal.SIGINT, end_at_once)
    if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, end_at_once)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed: what is opened next would get its number
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r+"))
    collect_rarely()
    from tidelog.cli import main  # noqa: PLC0415  # takes a while, in which interrupts may come

    main()


if __name__ == "__main__":
    start()
