"""A database for a program that is an event loop: what may take long is awaited.

Invariant: nothing but the turns of tidelog's own event loop, which are milliseconds, holds up the
program's.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar

from tidelog.checkpoint.manifest import Checkpoint, Savepoint
from tidelog.effects import SystemClock
from tidelog.errors import CheckpointFailedError
from tidelog.library.async_lock import AsyncStateLock
from tidelog.library.database import Database, found_in
from tidelog.library.declarations import State
from tidelog.library.event_loop import EventLoop
from tidelog.library.handles import KeyStates
from tidelog.library.opening import database_at, started
from tidelog.library.scan import scanned
from tidelog.runtime.config import JobConfig
from tidelog.runtime.sink import Sink
from tidelog.storage.open import Url

T = TypeVar("T")

_CLOCK: Final = SystemClock()
"""For the program's own loop; that of tidelog's loop has its lock."""
_ROWS_AT_ONCE: Final = 64
"""Rows of a scan after which other tasks of the program have a turn."""


@asynccontextmanager
async def open_async(
    url: Url,
    state: Mapping[str, State],
    *,
    sinks: Mapping[str, Sink] | None = None,
    name: str = "database",
    config: JobConfig | None = None,
    options: Mapping[str, Any] | None = None,
    log_url: Url | None = None,
) -> AsyncIterator["AsyncDatabase"]:
    """Open the state at `url` for an asyncio program, as `tidelog.open` does for others.

    The end of the block takes a last checkpoint, unless an exception or a cancellation leaves it.
    """
    config, event_loop = config or JobConfig(), EventLoop()
    lock = AsyncStateLock(event_loop.lock)
    try:
        make = partial(database_at, url, state, sinks, name, config, options, log_url)
        # In a thread: libraries of clouds take long to import.
        core = await event_loop.effects.offload.run_to_end(
            partial(make, event_loop=event_loop, lock=lock)
        )
        try:
            await _to_end(event_loop, started(core))
            database = AsyncDatabase(core, lock, event_loop)
            yield database
            await database.checkpoint()
        finally:
            await _to_end(event_loop, core._end())
    finally:
        event_loop.close()


async def _to_end(event_loop: EventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run in tidelog's loop; who is cancelled meanwhile waits for the end all the same."""
    running = asyncio.wrap_future(event_loop.start(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


class AsyncDatabase:
    """Durable state by key for the tasks of one event loop.

    Reads and changes of rows are ordinary calls, as they are short; whatever may take long is
    awaited. All operations raise the error that ended the database, if one has.
    """

    def __init__(self, core: Database, lock: AsyncStateLock, event_loop: EventLoop) -> None:
        self._core = core
        self._lock = lock
        self._event_loop = event_loop

    @property
    def position(self) -> dict[Any, Any] | None:
        """The position of each partition in the last durable checkpoint; None when it has none."""
        return self._core.position

    def key(self, key: Any) -> KeyStates:
        """The states of a key, as `Database.key` gives them; they are changed within `step`."""
        return self._core.key(key)

    def advance(self, partition: Any, position: Any) -> None:
        """The step that is open has done all that belongs to a position of a partition."""
        self._core.advance(partition, position)

    def write(self, sink: str, record: Any) -> None:
        """Write a record to one of the `sinks`, as a part of the step that is open."""
        self._core.write(sink, record)

    @asynccontextmanager
    async def step(self) -> AsyncIterator[None]:
        """The changes in the block are in one checkpoint, all of them, with its positions.

        It begins when no checkpoint is about to capture what is there, and when memory and sinks
        have room; within another step of the task it is a part of that one. Do not await in the
        block what may take long: a checkpoint waits for its end. A
        block that breaks off after it has changed something, also by being cancelled, ends the
        database: open it again, and it goes on from its last checkpoint.
        """
        await self._lock.begin_step()
        try:
            self._core._check()
            yield
        except BaseException as error:
            if self._lock.in_step:
                await _to_end(self._event_loop, self._core._broken_by(found_in(error)))
            raise
        finally:
            if self._lock.leave_block():
                self._core._program.end_step()

    async def scan(
        self, name: str, *, prefix: Any = None, after: Any = None
    ) -> AsyncIterator[tuple[Any, ...]]:
        """The keys of a state with their values, as `Database.scan` gives them."""
        self._core._check()
        rows = scanned([self._core._program.part(name)], prefix, after)
        await self._asked(self._core._flushed())
        for number, row in enumerate(rows, 1):
            yield row
            if number % _ROWS_AT_ONCE == 0:
                await _CLOCK.sleep(0)

    async def checkpoint(self) -> Checkpoint:
        """Wait until all that was changed is durable.

        Tasks that wait at the same time share a checkpoint. Raises CheckpointFailedError and what
        has ended the database.
        """
        self._core._end_step()
        try:
            return await self._asked(self._core._checkpoint())
        except CheckpointFailedError as error:
            raise self._core._ending() from error

    async def savepoint(self, name: str | None = None) -> Savepoint:
        """Wait for a checkpoint that is kept until somebody drops it; raises
        SavepointFailedError.
        """
        self._core._end_step()
        return await self._asked(self._core._runner.savepoint(name))

    async def _asked(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(self._event_loop.start(work))
