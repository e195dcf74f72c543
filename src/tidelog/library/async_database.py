"""A database for a program that is an event loop: what may take long is awaited.

Invariant: nothing but the turns of tidelog's own event loop, which are milliseconds, holds up the
program's.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from tidelog.checkpoint.manifest import Checkpoint, Savepoint
from tidelog.effects import SystemClock
from tidelog.library.database import store_at
from tidelog.library.event_loop import EventLoop
from tidelog.library.handles import KeyStates
from tidelog.library.scan import scanned
from tidelog.library.state_job import StateJob
from tidelog.library.state_lock import AsyncStateLock
from tidelog.library.states import State
from tidelog.runtime.config import JobConfig
from tidelog.runtime.sink import Sink
from tidelog.storage.open import Url

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
    effects = event_loop.effects
    try:
        # In a thread: libraries of clouds take long to import.
        store = await effects.offload.run_to_end(store_at, url, effects, config, options, log_url)
        job = StateJob(store, state, name, config, event_loop, AsyncStateLock, sinks=sinks)
        try:
            await event_loop.ask_async(job.start(), to_end=True)
            database = AsyncDatabase(job)
            yield database
            await database.checkpoint()
        finally:
            await event_loop.ask_async(job.end(), to_end=True)
    finally:
        event_loop.close()


class AsyncDatabase:
    """Durable state by key for the tasks of one event loop.

    Reads and changes of rows are ordinary calls, as they are short; whatever may take long is
    awaited. All operations raise the error that ended the database, if one has.
    """

    def __init__(self, job: StateJob[AsyncStateLock]) -> None:
        self._job, self._program, self._ask = job, job.program, job.event_loop.ask_async

    @property
    def position(self) -> dict[Any, Any] | None:
        """The position of each partition in the last durable checkpoint; None when it has none."""
        return self._program.position

    def key(self, key: Any) -> KeyStates:
        """The states of a key, as `Database.key` gives them; they are changed within `step`."""
        return self._program.key(key)

    def advance(self, partition: Any, position: Any) -> None:
        """The step that is open has done all that belongs to a position of a partition."""
        self._program.advance(partition, position)

    def write(self, sink: str, record: Any) -> None:
        """Write a record to one of the `sinks`, as a part of the step that is open."""
        self._program.write(sink, record)

    @asynccontextmanager
    async def step(self) -> AsyncIterator[None]:
        """The changes in the block are in one checkpoint, all of them, with its positions.

        It begins when no checkpoint is about to capture what is there, and when memory and sinks
        have room; within another step of the task it is a part of that one. Do not await in the
        block what may take long: a checkpoint waits for its end. A block that breaks off after it
        has changed something, also by being cancelled, ends the database: open it again, and it
        goes on from its last checkpoint.
        """
        lock = self._program.lock
        await lock.begin_step()
        try:
            self._job.check()
            yield
        except BaseException as error:
            if lock.in_step and not lock.closed:
                await self._ask(self._job.break_off(error), to_end=True)
            raise
        finally:
            lock.leave_block()

    async def scan(
        self, name: str, *, prefix: Any = None, after: Any = None
    ) -> AsyncIterator[tuple[Any, ...]]:
        """The keys of a state with their values, as `Database.scan` gives them."""
        self._job.check()
        rows = scanned([self._program.part(name)], prefix, after)
        await self._ask(self._job.flush())
        for number, row in enumerate(rows, 1):
            yield row
            if number % _ROWS_AT_ONCE == 0:
                await _CLOCK.sleep(0)

    async def checkpoint(self) -> Checkpoint:
        """Wait until all that was changed is durable.

        Tasks that wait at the same time share a checkpoint. Raises CheckpointFailedError and what
        has ended the database.
        """
        self._job.end_step()
        return await self._ask(self._job.checkpoint())

    async def savepoint(self, name: str | None = None) -> Savepoint:
        """Wait for a checkpoint that is kept until somebody drops it; raises
        SavepointFailedError.
        """
        self._job.end_step()
        return await self._ask(self._job.savepoint(name))
