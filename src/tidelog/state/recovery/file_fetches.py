"""Whole files, which arrive in the background, and what reads may ask for meanwhile.

Invariant: a file is whole when all of it, as it was written, has the checksums of its object.
"""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from tidelog.concurrency import SharedTasks, together
from tidelog.effects import Offload, wait_for
from tidelog.state.recovery.arrivals import Arrivals
from tidelog.state.recovery.file_store import FileStore
from tidelog.state.recovery.pacing import bytes_for_reads
from tidelog.state.recovery.partial_file import PartialFile
from tidelog.state.recovery.progress import HydrationProgress
from tidelog.storage.port import ObjectStore

if TYPE_CHECKING:
    from tidelog.checkpoint.local_first import LocalFirstStore

_CHECKED_AT_ONCE: Final = 2
"""Files that are checked at a time: others need threads of the pool, too."""
_BEGIN_S: Final = 0.1
"""Files begin to come one after the other, so that the first records find room on the link."""
_SILENCE_S: Final = 1.0
"""When nothing of a file has arrived for so long reads wait for room no longer."""


class Served(Protocol):
    """What lacks files."""

    async def complete(self) -> None:
        """All of its files are here."""


@dataclass(slots=True)
class FileFetches:
    """Fetches all files of a process, those first of which reads have missed most."""

    store: FileStore
    progress: HydrationProgress
    tasks: SharedTasks
    concurrency: int
    """Files that are fetched at a time."""
    copies: "LocalFirstStore | None"
    """Where files are kept on local disk."""
    arrivals: Arrivals[PartialFile, Served] = field(default_factory=Arrivals)
    turns: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Reads ask for parts one after the other, in the order of their records, ..."""
    asked_bytes: int = 0
    """... and have asked for so many bytes."""
    _arrival: asyncio.Event = field(default_factory=asyncio.Event)
    """Something has arrived."""
    _checks: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_CHECKED_AT_ONCE))
    _finished: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def room_bytes(self) -> int:
        """What reads may ask for: files have to arrive, too."""
        progress = self.progress
        return bytes_for_reads(progress.total_bytes, progress.bytes) - self.asked_bytes

    async def room(self) -> None:
        """Return when reads may ask for more, or nothing arrives."""
        while self.room_bytes < 0 and not self._finished.is_set():
            self._arrival.clear()
            await wait_for(self._arrival, self.store.effects.clock, _SILENCE_S)
            if not self._arrival.is_set():
                return

    async def whole(self) -> None:
        """Return when all files are here."""
        await self._finished.wait()

    async def run(self) -> None:
        """Fetch all files; raises the first damage."""
        await together(map(self._fetch_some, range(self.concurrency)))
        self._finished.set()
        self._arrival.set()

    async def _fetch_some(self, number: int) -> None:
        await self.store.effects.clock.sleep(number * _BEGIN_S)
        completing: asyncio.Task[None] | None = None
        while (file := self.arrivals.next()) is not None:
            fetch = partial(self._fetch_rest, file, asyncio.get_running_loop())
            await self.store.patiently(partial(self.store.go_aside, fetch))
            if completing is not None:
                await completing
            # The link has something to do meanwhile.
            completing = self.tasks.start(self._complete(file))
        if completing is not None:
            await completing

    async def _fetch_rest(
        self,
        file: PartialFile,
        loop: asyncio.AbstractEventLoop,
        store: ObjectStore,
        offload: Offload,
    ) -> None:
        """In the event loop aside."""
        counted = 0

        def arrived(size: int) -> None:
            nonlocal counted
            counted += size
            self.progress.bytes += size
            loop.call_soon_threadsafe(self._arrival.set)

        try:
            await file.fetch_rest(store, offload, arrived)
        except BaseException:
            arrived(-counted)
            raise

    async def _complete(self, file: PartialFile) -> None:
        offload, name = self.store.effects.offload, file.object.object
        async with self._checks:
            await offload.run_to_end(file.complete)
        if self.copies is not None and not self.copies.has_copy(name):
            await self.copies.keep_file(name, file.path)
        await offload.run(file.path.unlink, True)
        for served in self.arrivals.arrived(file):
            await served.complete()
