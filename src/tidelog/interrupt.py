"""An interrupt of `tidelog` and `python -m tidelog` while the command is still imported.

Imports next to nothing: an interrupt before this is Python's own, with its traceback.
"""

import os
import signal
from types import FrameType


def end_at_once(number: int, frame: FrameType | None) -> None:
    """For an interrupt while the command is still imported, and for SIGTERM to the first process of
    a container, which gets no default actions of signals.
    """
    os._exit(128 + number)


def end_when_interrupted() -> None:
    """From now on; not where interrupts are ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)
