"""How the process of `tidelog` and `python -m tidelog` ends: by an interrupt while the command is
still imported, and whether a command may end it at all.

Imports next to nothing: an interrupt before this is Python's own, with its traceback.
"""

import os
import signal
from types import FrameType

_commands: list[bool] = []
"""Something is in it when this process is that of one command, and of nothing else."""


def claim_process() -> None:
    """From now on this process is that of one command, which may end it."""
    _commands.append(True)


def process_is_claimed() -> bool:
    """Whether the process may be ended, which then ends nothing but the command."""
    return bool(_commands)


def end_at_once(number: int, frame: FrameType | None) -> None:
    """For an interrupt while the command is still imported, and for SIGTERM to the first process of
    a container, which gets no default actions of signals.
    """
    os._exit(128 + number)


def end_when_interrupted() -> None:
    """From now on; not where interrupts are ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)
