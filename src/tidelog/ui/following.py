"""Follows a store, and a job that runs on it, and gives the document of the page at any time.

Invariants: who looks gets what is known, and waits for the store only as long as they like;
what a read brings later is in the next document, and one says since when the store has not
answered; the store is read by one at a time, when somebody looks and it is time to.
"""

import asyncio
from datetime import UTC, datetime
from typing import Final, Protocol

from tidelog.checkpoint.finding import Finding
from tidelog.checkpoint.invariants import Invariant, unreadable
from tidelog.effects import Clock
from tidelog.errors import ObjectNotFoundError, StoreUnreachableError, TidelogError
from tidelog.spark.checkpoint.checkpoint import find_layout
from tidelog.storage.port import ObjectStore
from tidelog.ui.document import Document
from tidelog.ui.query import QueryWatcher
from tidelog.ui.stored import StoreReader
from tidelog.ui.watch import JOB_S, Watcher

PATIENCE_S: Final = 2.0
"""How long somebody who looks waits for the store."""


class Watching(Protocol):
    """The port for what is known of a store of one kind, and of its job."""

    async def look_at_job(self) -> None:
        """Ask the job on the store, if one runs here."""

    def due(self, *, on_demand: bool) -> bool:
        """Whether it is time to read the store."""

    async def read(self) -> None:
        """Read the store; raises what the store raises."""

    def document(self, unread: tuple[Finding, ...]) -> Document:
        """What is known now; `unread` says what is wrong with reading the store."""


class Follower:
    """What is known of one store: that of a job, or the checkpoint of a Spark query, which shows
    when the store has answered for the first time.
    """

    def __init__(self, store: ObjectStore, clock: Clock, watching: Watching | None = None) -> None:
        """`watching` is for a store whose kind is known."""
        self.failure: TidelogError | None = None
        """Why the store could not be read when it was read last."""
        self._clock = clock
        self._store = store
        self._is_known = watching is not None
        self._watching = watching or Watcher(StoreReader(store, clock), clock)
        self._reading: asyncio.Task[None] | None = None
        self._asked_ms: int | None = None
        """When the store was asked what it has not answered since."""

    async def follow(self) -> None:
        """Ask the job again and again, until cancelled."""
        while True:
            await self.look_at_job()
            await self._clock.sleep(JOB_S)

    async def look_at_job(self) -> None:
        """Ask the job on the store, if one runs here."""
        await self._watching.look_at_job()

    async def document(
        self, *, on_demand: bool = False, patience_s: float | None = None
    ) -> Document:
        """What is known now; reads the store when it is time to, or sooner `on_demand`, and waits
        for it so long, or to the end.
        """
        if self._reading is None and self._watching.due(on_demand=on_demand):
            self._reading = asyncio.ensure_future(self._read())
        if self._reading is not None:
            done, _ = await asyncio.wait([self._reading], timeout=patience_s)
            for read in done:
                read.result()  # a defect of ours
        return self._watching.document(self._unread())

    async def _read(self) -> None:
        if self._asked_ms is None:
            self._asked_ms = self._clock.now_ms()
        try:
            if not self._is_known and await self._is_of_a_query():
                self._watching = QueryWatcher(self._store, self._clock)
            self._is_known = True
            await self._watching.read()
        except TidelogError as error:
            self.failure = error
            if not isinstance(error, StoreUnreachableError):
                self._asked_ms = None
        else:
            self.failure, self._asked_ms = None, None
        finally:
            self._reading = None

    async def _is_of_a_query(self) -> bool:
        try:
            return await find_layout(self._store) == "query"
        except ObjectNotFoundError:  # which reading it as a job's tells better
            return False

    def _unread(self) -> tuple[Finding, ...]:
        error, asked_ms = self.failure, self._asked_ms
        if asked_ms is None:
            if error is None:
                return ()
            return (_finding(error.what, unreadable(error.what, error).found, error.action),)
        since = datetime.fromtimestamp(asked_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        seconds = (self._clock.now_ms() - asked_ms) / 1000
        found = f"none since {since}, for {seconds:.0f} s"
        if error is not None:
            found += f": {error.found or error.what}"
        action = "check the endpoint and the network; it is asked again until it answers"
        return (_finding(f"store {self._store.url}", found, action, "an answer"),)


def _finding(
    where: str, found: str, action: str, expected: str = "a store that can be read"
) -> Finding:
    return Finding(Invariant.READABLE, where, expected, found, action=action)
