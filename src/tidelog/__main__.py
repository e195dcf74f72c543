"""`tidelog` and `python -m tidelog`: the command line.

Invariant: an interrupt ends it with code 130, from its first moment on: nothing is lost before a
command begins, and commands see to what they do.
"""

import os
import signal
from types import FrameType


def end_at_once(number: int, frame: FrameType | None) -> None:
    """For an interrupt while the command is still imported."""
    os._exit(128 + number)


def start() -> None:
    """Run the command that the arguments name."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored
        signal.signal(signal.SIGINT, end_at_once)
    from tidelog.cli import main  # noqa: PLC0415  # takes a while, in which interrupts may come

    main()


if __name__ == "__main__":
    start()
