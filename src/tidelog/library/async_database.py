"""A database for a program that is an event loop: what may take long is awaited.

Invariant: nothing but the turns of tidelog's own event loop, which are milliseconds, holds up the
program's.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from tidelog.checkpoint.manifest import Checkpoint, Savepoint
from tidelog.effects import SystemClock
from tidelog.library.database import KeyedDatabase, configured_store
from tidelog.library.event_loop import EventLoop
from tidelog.library.scan import BEGINNING, Scan
from tidelog.library.state_job import StateJob
from tidelog.library.states import State
from tidelog.library.steps import TaskSteps
from tidelog.runtime.config import JobConfig
from tidelog.runtime.sink import Sink
from tidelog.storage.open import Url

_CLOCK: Final = SystemClock()
"""For the program's own loop; that of tidelog's loop has its lock."""
_ROWS_PER_TURN: Final = 64
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
        store = await effects.offload.run_to_end(
            configured_store, url, effects, config, options, log_url
        )
        job = StateJob(store, state, name, config, event_loop, TaskSteps, sinks=sinks)
        try:
            await event_loop.ask_async(job.start(), to_end=True)
            database = AsyncDatabase(job)
            yield database
            await database.checkpoint()
        finally:
            await event_loop.ask_async(job.end(), to_end=True)
    finally:
        event_loop.close()


class AsyncDatabase(KeyedDatabase):
    """Durable state by key for the tasks of one event loop.

    Reads and changes of rows are ordinary calls, as they are short; whatever may take long is
    awaited. All operations raise the error that ended the database, if one has.
    """

    async def scan(
        self, name: str, *, prefix: Any = None, after: Any = BEGINNING
    ) -> AsyncIterator[tuple[Any, ...]]:
        """The keys of a state with their values, as `Database.scan` gives them."""
        self._job.check()
        scan = Scan([self._program.scan_part(name)], prefix, after)
        if not scan.ordered:
            await self._job.event_loop.ask_async(self._job.flush())
        for number, row in enumerate(scan.rows(), 1):
            yield row
            if number % _ROWS_PER_TURN == 0:
                await _CLOCK.sleep(0)

    async def checkpoint(self) -> Checkpoint:
        """Wait until all that was changed is durable.

        Tasks that wait at the same time share a checkpoint. Raises CheckpointFailedError and what
        has ended the database.
        """
        self._job.end_step()
        return await self._job.event_loop.ask_async(self._job.checkpoint())

    async def savepoint(self, name: str | None = None) -> Savepoint:
        """Wait for a checkpoint that is kept until somebody drops it. SavepointFailedError."""
        self._job.end_step()
        return await self._job.event_loop.ask_async(self._job.savepoint(name))
