"""`tidelog` and `python -m tidelog`: the command line.

Invariant: an interrupt ends it with code 130, from its first moment on: nothing is lost before a
command begins, and commands see to what they do.
"""

import gc
import os
import signal
import sys
from typing import Final

from tidelog.interrupt import claim_process, end_at_once, end_when_interrupted

_NEW_OBJECTS: Final = 50_000
"""After so many the garbage collector looks at them, which by default it does after each 700:
modules stay, and records of several buffers are gone before it would find that they are in use."""


def collect_rarely() -> None:
    """Let the garbage collector look at new objects as seldom as in `tidelog run`."""
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])


def start() -> None:
    """Run the command that the arguments name."""
    end_when_interrupted()
    if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, end_at_once)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed: what is opened next would get its number
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r+"))
    collect_rarely()
    from tidelog.cli import run  # noqa: PLC0415  # takes a while, in which interrupts may come

    gc.freeze()  # what was imported stays; what a command imports is no reason to look at it
    claim_process()
    run()


if __name__ == "__main__":
    start()
