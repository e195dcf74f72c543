"""How the process of `tidelog` and `python -m tidelog` ends: by an interrupt while the command is
still imported, after the command, and whether a command may end it at all.

Imports next to nothing: an interrupt before this is Python's own, with its traceback.
"""

import atexit
import os
import signal
import sys
from contextlib import suppress
from types import FrameType

_commands: list[bool] = []
"""Something is in it when this process is that of one command, and of nothing else."""
_codes: list[int] = []
"""What the command has ended with."""


def claim_process() -> None:
    """From now on this process is that of one command, which may end it."""
    _commands.append(True)
    # Python calls last what was registered first: only what logging has registered is before this.
    atexit.register(_end)


def ended(code: int) -> None:
    """The command has ended with this code, and the process may end without freeing its objects.

    To free the rows of a job one by one takes a twentieth of a short run.
    """
    _codes.append(code)


def _end() -> None:
    if _codes:
        if (logging := sys.modules.get("logging")) is not None:
            logging.shutdown()
        flush_streams()
        os._exit(_codes[-1])


def flush_streams() -> None:
    """Write what the standard streams have buffered; a reader that has gone is no error."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


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
