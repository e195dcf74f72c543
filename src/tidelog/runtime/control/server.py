"""The control socket of a running job.

Invariants: only this user can connect; a request is answered before the socket closes, unless the
job dies; a savepoint goes on when its client goes away. A newer incarnation takes the name over
from an older one, and the older one leaves it to the newer. A socket that somebody removed, or that
could not be made, is made anew.
"""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, assert_never

import msgspec

from tidelog.checkpoint.manifest import Savepoint
from tidelog.concurrency import discard
from tidelog.errors import ConfigError, StorageError, TidelogError
from tidelog.events import Event
from tidelog.runtime.control.protocol import (
    LIMIT_BYTES,
    Done,
    Failed,
    Line,
    Progress,
    Request,
    decode_request,
    encode,
    prepare_directory,
    socket_of,
)
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.status.observe import status_of
from tidelog.storage import errors

logger = logging.getLogger(__name__)

PROGRESS_S: Final = 0.25
"""Seconds between reports of progress to a client that waits."""
_PATIENCE_S: Final = 5.0
"""How long the end of a job waits for its last answers to be sent."""
RENEWAL_S: Final = 2.0
"""How often it is looked whether the socket is still there."""


async def control_until(
    job_end: "asyncio.Future[Any]", runner: JobRunner, unavailable: Callable[[StorageError], None]
) -> None:
    """Answer until the job has ended; `unavailable` is called once while there can be no socket."""
    is_told = False
    while not job_end.done():
        try:
            async with serve_control(runner):
                await asyncio.wait([job_end])
        except StorageError as error:
            if not is_told:
                unavailable(error)
            is_told = True
            await asyncio.wait([job_end], timeout=RENEWAL_S)


@asynccontextmanager
async def serve_control(runner: JobRunner) -> AsyncIterator[Path]:
    """Answer on the control socket of a job as long as the block runs; the socket's path.

    Raises StorageError and its kinds when there can be no socket.
    """
    control = _Control(runner)
    name = _SocketName(socket_of(runner.store.url), control)
    await name.open()
    renewing = asyncio.ensure_future(name.renew())
    try:
        yield name.path
    finally:
        await discard([renewing])
        name.server.close()
        await control.finish()
        name.remove()


class _SocketName:
    """The name under which clients find the socket of a job."""

    server: asyncio.Server

    def __init__(self, path: Path, control: "_Control") -> None:
        self.path = path
        self._control = control
        self._inode = -1

    async def open(self) -> None:
        """Listen under the name; raises StorageError and its kinds."""
        try:
            prepare_directory()
            listening = _listen(self.path)
            self._inode = self.path.stat().st_ino
        except OSError as error:
            raise errors.from_os_error(error, f"control socket {self.path}") from error
        serve = self._control.serve
        self.server = await asyncio.start_unix_server(serve, sock=listening, limit=LIMIT_BYTES)

    async def renew(self) -> None:
        """Make the socket anew, until cancelled, when it is gone; one of a newer job is left."""
        is_told = False
        while True:
            await self._control.runner.effects.clock.sleep(RENEWAL_S)
            if self.path.exists():
                continue
            before = self.server
            try:
                await self.open()
            except StorageError as error:
                if not is_told:
                    Event.CONTROL_SOCKET_GONE.log(logger, path=self.path, error=error)
                is_told = True
            else:
                before.close()
                is_told = False
                Event.CONTROL_SOCKET_RENEWED.log(logger, path=self.path)

    def remove(self) -> None:
        """Remove the name, unless it is that of a newer job."""
        try:
            if self.path.stat().st_ino == self._inode:
                self.path.unlink()
        except OSError as error:
            Event.FILE_NOT_DELETED.log(logger, path=self.path, error=error)


def _listen(path: Path) -> socket.socket:
    """A socket under this name; one of a dead or an older job is replaced."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _bind(listening, path)
        # Nobody can connect before it listens.
        path.chmod(0o600)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


def _bind(listening: socket.socket, path: Path) -> None:
    for tries_left in (2, 1, 0):
        path.unlink(missing_ok=True)
        try:
            listening.bind(str(path))
        except OSError as error:
            # An older job has just made its own anew.
            if error.errno != errno.EADDRINUSE or not tries_left:
                raise
        else:
            return


@dataclass(slots=True)
class _Control:
    runner: JobRunner
    _busy: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            data = await reader.readline()
            if not data:
                return
            # From here on the end of the job waits for the answer.
            self._busy.add(task)
            writer.write(encode(await self._answer(data, writer)))
            await writer.drain()
        except (ConnectionError, ValueError) as error:  # it went away, or its line never ended
            Event.CONTROL_CLIENT_GONE.log(logger, error=error)
        finally:
            self._busy.discard(task)
            writer.close()

    async def finish(self) -> None:
        """Wait until all requests are answered, for a few seconds at most."""
        if self._busy:
            _, unanswered = await asyncio.wait(set(self._busy), timeout=_PATIENCE_S)
            if unanswered:
                Event.CONTROL_UNANSWERED.log(logger, clients=len(unanswered))

    async def _answer(self, data: bytes, writer: asyncio.StreamWriter) -> Line:
        try:
            request = decode_request(data)
            self._check(request)
            return await self._carry_out(request, writer)
        except TidelogError as error:
            Event.CONTROL_REFUSED.log(logger, error=error)
            return Failed.of(error)

    def _check(self, request: Request) -> None:
        runner = self.runner
        for what, expected, actual in (
            ("store", request.store, runner.store.url),
            ("name", request.job, runner.job.name),
        ):
            if expected is not None and expected != actual:
                raise ConfigError(
                    f"the {what} of the job that runs here",
                    expected=expected,
                    found=actual,
                    action=f"correct the {what}",
                )

    async def _carry_out(self, request: Request, writer: asyncio.StreamWriter) -> Line:
        runner, incarnation = self.runner, self.runner.incarnation
        name, format, timeout_s = request.name, request.format, request.timeout_s
        done = Done(runner.job.name, os.getpid(), runner.generation)
        match request.operation:
            case "status":
                return done
            case "observe":
                # In one piece: the job goes on meanwhile.
                recent = incarnation.driver.metrics.recent if incarnation is not None else ()
                status = status_of(runner)
                return msgspec.structs.replace(done, status=status, checkpoints=list(recent))
            case "savepoint":
                taking = runner.savepoint(name, format, timeout_s=timeout_s)
                return await self._report(taking, writer)
            case "stop":
                stopping = runner.stop(name, format, drain=request.drain, timeout_s=timeout_s)
                return await self._report(stopping, writer)
            case "forget":
                if incarnation is not None and request.checkpoint is not None:
                    incarnation.collector.forget(request.checkpoint)
                return done
        assert_never(request.operation)

    async def _report(self, taking: Awaitable[Savepoint], writer: asyncio.StreamWriter) -> Line:
        """Progress until the savepoint is there; it goes on also when the client goes away."""
        savepoint = asyncio.ensure_future(taking)
        clock, incarnation = self.runner.effects.clock, self.runner.incarnation
        while not savepoint.done():
            if incarnation is not None:
                with suppress(ConnectionError):
                    writer.write(encode(Progress(*incarnation.driver.coordinator.progress)))
                    await writer.drain()
            pause = asyncio.ensure_future(clock.sleep(PROGRESS_S))
            await asyncio.wait([savepoint, pause], return_when=asyncio.FIRST_COMPLETED)
            pause.cancel()
        return Done.of(savepoint.result(), os.getpid())
