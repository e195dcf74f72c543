"""Sends requests to the job that runs on a store, through its control socket.

Invariants: an answer is the job's own, or an error says why there is none; a socket that another
user made is believed by nobody but root, who may ask the jobs of all.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from tidelog.errors import AccessDeniedError, ControlError, TidelogError
from tidelog.runtime.control.protocol import (
    ANSWER_LIMIT_BYTES,
    Done,
    Failed,
    Progress,
    Request,
    decode_line,
    encode,
    other_sockets,
    socket_of,
)

SILENCE_S: Final = 60.0
"""A job that takes a savepoint says every quarter of a second how far it is."""
_PATIENCE_S: Final = 5.0

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def ask(request: Request, progress: Callable[[Progress], None] = lambda _: None) -> Done:
    """The answer of the job on `request.store`.

    Raises ControlError (no job runs here, it ended meanwhile or hangs), AccessDeniedError (another
    user's job) and the job's own error.
    """
    reader, writer = await _connect(request.store)
    try:
        writer.write(encode(request))
        await writer.drain()
        while line := await _next_line(reader, request):
            match decode_line(line):
                case Progress() as step:
                    progress(step)
                case Failed() as failed:
                    raise failed.error()
                case Done() as done:
                    return done
    except (ConnectionError, msgspec.MsgspecError, ValueError):
        pass  # as if it had ended
    finally:
        writer.close()
    raise ControlError(
        f"the job on store {request.store}",
        expected="its answer",
        found="that it ended meanwhile",
        action="`tidelog checkpoints list URL` shows whether the savepoint was completed; the job "
        "itself says why it ended",
    )


async def runs_here(url: str) -> bool:
    """Whether a job runs on the store at `url`, on this machine, also one that does not answer."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await ask(Request(url, "status"))
    except ControlError:
        return False
    except (TimeoutError, TidelogError):
        return True
    return True


async def _next_line(reader: asyncio.StreamReader, request: Request) -> bytes:
    try:
        async with asyncio.timeout(SILENCE_S):
            return await reader.readline()
    except TimeoutError as silence:
        raise ControlError(
            f"the job on store {request.store}",
            expected="its answer",
            found=f"nothing from it for {SILENCE_S:g} s: it is suspended, or a call of one of its "
            "functions does not return",
            action="let it go on, and it does what it was asked; or end its process, and start it "
            "again: it resumes from its last checkpoint",
        ) from silence


async def _connect(url: str) -> Connection:
    user = os.geteuid()
    others = sorted(other_sockets(url), key=lambda socket: socket[1] != user)
    for path, owner in [(socket_of(url), user), *others]:
        if user not in (owner, 0):
            raise _another_user(url, path)
        try:
            return await asyncio.open_unix_connection(str(path), limit=ANSWER_LIMIT_BYTES)
        except PermissionError as refused:
            raise _another_user(url, path) from refused
        except OSError:
            continue  # none there, or left by a process that is dead
    raise ControlError(
        f"the job on store {url}",
        expected="a job that runs on this machine",
        found="none",
        action="run the command where the job runs, with the URL that the job was given, and with "
        "its TIDELOG_CONTROL_DIR if it has one; a job that starts up or restores does not answer "
        "yet, and one in a unit with PrivateTmp= is found if the unit has RuntimeDirectory=, see "
        "docs/guides/operations.md",
    )


def _another_user(url: str, path: Path) -> AccessDeniedError:
    return AccessDeniedError(
        f"the job on store {url}",
        expected="one of this user",
        found=f"that of the user who owns {path}",
        action="run the command as that user",
    )
