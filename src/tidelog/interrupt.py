"""How the process of `tidelog` and `python -m tidelog` ends: by an interrupt while the command is
still imported, and without waiting for what nobody needs any more.

Imports next to nothing: an interrupt before this is Python's own, with its traceback.
"""

import atexit
import os
import signal
import sys
import threading
from types import FrameType
from typing import Final, NoReturn

OWN_THREADS: Final = "tidelog"
"""What the names of tidelog's own threads begin with: they work for nobody once a command ends."""

_commands: list[bool] = []
"""Something is in it when this process is that of one command, and of nothing else."""


def claim_process() -> None:
    """From now on this process is that of one command, which may end it."""
    _commands.append(True)


def process_is_claimed() -> bool:
    """Whether the process may be ended, which then ends nothing but the command."""
    return bool(_commands)


def end_process(code: int) -> NoReturn:
    """End the process of a command; threads of the user's are waited for, as Python does. It would
    also wait for tidelog's own: a minute for the answer of a store that is silent.
    """
    threads = [each for each in threading.enumerate() if not each.daemon]
    own = [each for each in threads if each.name.startswith(OWN_THREADS)]
    for thread in threads:
        if thread not in own and thread is not threading.main_thread():
            thread.join()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # a full disk, or closed
            continue
    if any(each.is_alive() for each in own):
        atexit._run_exitfuncs()
        os._exit(code)
    sys.exit(code)


def end_at_once(number: int, frame: FrameType | None) -> None:
    """For an interrupt while the command is still imported, and for SIGTERM to the first process of
    a container, which gets no default actions of signals.
    """
    os._exit(128 + number)


def end_when_interrupted() -> None:
    """From now on; not where interrupts are ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)
