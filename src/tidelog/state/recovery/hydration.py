"""Tables that serve while their files arrive: what fetches the files of a process.

A table is opened over placeholders, which the directories of all tables that share a file link to.
First come the tails of the files, then, in the background, whole files; what a read needs is
fetched immediately, beside these. `ensure` fetches it before a buffer is handled, so that the event
loop continues; a read that meets a hole all the same waits in its thread.

Invariants: RocksDB checks a part when it is read, and the checksum of its object a whole file; what
is bad after it was fetched raises CorruptObjectError with the name of the object; placeholders are
below the work directory and end with it.
"""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelog.checkpoint.descriptor import Descriptor, TableObject
from tidelog.concurrency import SharedTasks
from tidelog.effects import Effects
from tidelog.errors import CorruptObjectError
from tidelog.events import Event
from tidelog.state.recovery.file_fetches import FileFetches
from tidelog.state.recovery.file_store import FileStore
from tidelog.state.recovery.part_fetches import PartFetches
from tidelog.state.recovery.partial_file import PartialFile
from tidelog.state.recovery.parts import Part
from tidelog.state.recovery.progress import HydrationProgress, RestoreProgress
from tidelog.table.failures import failures
from tidelog.table.holes import ANYWHERE, Hole, check_room, make_placeholder
from tidelog.table.port import Serve, ServedTable

if TYPE_CHECKING:
    from tidelog.checkpoint.local_first import LocalFirstStore

logger = logging.getLogger(__name__)

TAILS_S: Final = 1.5
"""So long a start waits for the tails of all files. With them RocksDB opens each file once and for
good; without, it opens those that are read first, and a look-up takes a little longer. ...
"""
_TAILS_BYTES: Final = 64 << 20
"""... Where they are more than so many bytes it does not wait."""

_FIRST_TAIL_S: Final = 0.5
"""So long one tail is waited for, which tells how long the others are."""

Range = tuple[bytes, bytes]
"""Row keys from the first to before the second."""

_SHORT_BYTES: Final = 8 << 20
"""What some thousand rows need that are read before they may."""


@dataclass(frozen=True, slots=True)
class TableParts:
    """The parts of a table's files; its reads get them here, in any thread. Implements `Holes`."""

    hydration: "Hydration"
    files: Mapping[str, PartialFile]
    """By their names in the table."""

    def of(self, holes: Iterable[Hole]) -> list[Part]:
        return [Part(self.files[name], offset, length) for name, offset, length in holes]

    def fill(self, holes: Sequence[Hole], ahead: int) -> None:
        if ANYWHERE in holes:
            parts = [Part(file, 0, file.object.size) for file in self.files.values()]
            at_once = self.hydration.files.concurrency  # of whole files no more are in memory
        else:
            parts, at_once = self.of(holes), len(holes)
        missing = [part for part in parts if not part.file.is_whole]
        while missing:
            self.hydration.parts.wait_for(missing[:at_once], ahead)
            missing = missing[at_once:]

    def damage(self, hole: Hole, problem: str) -> CorruptObjectError | None:
        file = self.files.get(hole.file)
        return None if file is None or file.is_whole else file.damage(problem)


@dataclass(slots=True, eq=False)
class TableHydration:
    """A table that serves, and what of it is missing."""

    table: ServedTable
    parts: TableParts
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """All files are here."""
    first_reads: "asyncio.Task[None] | None" = None
    """Fetches what the subtask looks at before its first record."""
    _was_stalled: bool = False
    on_whole: Callable[[], None] = lambda: None

    @property
    def is_whole(self) -> bool:
        """Whether reads meet no hole any more."""
        return self.arrived.is_set()

    def begin(self, fetch: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Begin a fetch for what comes later; it ends with the process's hydration."""
        return self.parts.hydration.tasks.start(fetch)

    def check_stall(self) -> bool:
        """Whether writers have to wait until the table is whole; the progress counts it."""
        is_stalled = not self.is_whole and self.table.is_stalled()
        if is_stalled != self._was_stalled:
            self._was_stalled = is_stalled
            self.parts.hydration.progress.stall(is_stalled)
        return is_stalled

    def notify(self, on_whole: Callable[[], None]) -> None:
        """Call this when the table is whole: writers that waited go on."""
        self.on_whole = on_whole

    async def whole(self) -> None:
        """Return when the table is whole."""
        await self.arrived.wait()

    @property
    def is_short(self) -> bool:
        """Whether reads are about to wait before they may ask for more."""
        return self.parts.hydration.files.room_bytes < _SHORT_BYTES

    async def complete(self) -> None:
        """All of its files are here."""
        await self.parts.hydration.effects.offload.run_to_end(self.table.whole)
        self.arrived.set()
        self.on_whole()

    async def ensure(self, keys: list[bytes], ranges: Sequence[Range] = (), rows: int = 1) -> None:
        """Fetch what is missing to read these keys, and the first rows of these ranges of keys.

        Waits while the store does not answer. Raises what reads raise.
        """
        hydration, filled = self.parts.hydration, set[Hole]()
        while not self.is_whole and (keys or ranges):
            async with hydration.files.turns:
                await hydration.files.room()
                # In a thread of its own: those of the pool check the files that arrive.
                keys, ranges, holes = await hydration.effects.offload.wait(
                    self.table.gaps, keys, ranges, rows
                )
                hydration.files.asked_bytes += sum([length for _, _, length in holes])
            for hole in filled.intersection(holes):
                if damage := self.parts.damage(hole, f"a bad part at {hole.offset}"):
                    raise damage
            filled.update(holes)
            if ANYWHERE in holes:
                await self.whole()
            else:
                await hydration.fetch(self.parts.of(holes))

    def close(self) -> None:
        """The table is closed: fetch nothing more for it alone."""
        self.parts.hydration.files.arrivals.leave(self)


@dataclass(slots=True)
class Hydration:
    """The files of all tables of a process that serve before they are whole."""

    store: FileStore
    restore: RestoreProgress
    """What arrives later is no part of the restore."""
    directory: Path
    """For placeholders; absent before."""
    parts: PartFetches
    files: FileFetches
    tasks: SharedTasks
    """All that is under way."""
    _files: dict[str, PartialFile] = field(default_factory=dict)
    """The files of all tables, by the name of their object in the store."""
    _placing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _numbers: "count[int]" = field(default_factory=count)

    @classmethod
    def of(
        cls,
        store: FileStore,
        restore: RestoreProgress,
        directory: Path,
        concurrency: int,
        copies: "LocalFirstStore | None",
    ) -> "Hydration":
        """A hydration before its first table is opened; `concurrency` is the number of whole files
        that are fetched at a time.
        """
        tasks = SharedTasks()
        parts = PartFetches(store, restore.hydration, tasks)
        files = FileFetches(store, restore.hydration, tasks, concurrency, copies)
        return cls(store, restore, directory, parts, files, tasks)

    @property
    def effects(self) -> Effects:
        return self.store.effects

    @property
    def progress(self) -> HydrationProgress:
        return self.restore.hydration

    async def open(self, descriptor: Descriptor, serve: Serve, directory: Path) -> TableHydration:
        """Open a table in a directory, which is absent, before its files are here."""
        async with self._placing:
            # A table that shares a file finds its placeholder, which is made in a thread.
            files = await self._placed(descriptor.shared)
        run = self.effects.offload.run
        await run(_lay_out, descriptor.private, list(files.items()), directory)
        parts, has_tails = TableParts(self, files), await self._tails(files.values())
        table = await self.effects.offload.run_to_end(serve, directory, parts, has_tails)
        if self.progress.started is None:
            self.progress.started = self.effects.clock.monotonic()
        served = TableHydration(table, parts)
        if files:
            self.files.arrivals.add(served, files.values())
        else:
            await served.complete()
        return served

    async def _placed(self, objects: Iterable[TableObject]) -> dict[str, PartialFile]:
        """The files of a table by name; those that no other table has yet get placeholders."""
        files: dict[str, PartialFile] = {}
        new: list[PartialFile] = []
        for table_object in objects:
            file = self._files.get(table_object.object)
            if file is None:
                path = self.directory / str(next(self._numbers))
                file = self._files[table_object.object] = PartialFile(table_object, path)
                new.append(file)
            files[table_object.name] = file
        size = sum(file.object.size for file in new)
        await self.effects.offload.run_to_end(self._make_placeholders, new, size)
        self.restore.total_bytes -= size
        self.progress.total_bytes += size
        return files

    def _make_placeholders(self, files: Sequence[PartialFile], size: int) -> None:
        with failures(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
        check_room(self.directory, size, [file.path for file in self._files.values()])
        for file in files:
            make_placeholder(file.path, file.object.size)

    async def _tails(self, files: Iterable[PartialFile]) -> bool:
        """Begin to fetch the tails of files; whether all are here before the table is opened."""
        # The newest first: without the others RocksDB opens these, one after the other.
        newest_first = list(files)[::-1]
        if not newest_first:
            return True
        largest = max(newest_first, key=lambda file: file.object.size)
        await self.parts.fetch_tails([Part(largest, None, 0)], _FIRST_TAIL_S)
        tails = [Part(file, None, file.tail_guess(largest)) for file in newest_first]
        size = sum([length for _, _, length in tails])
        return await self.parts.fetch_tails(tails, TAILS_S if size <= _TAILS_BYTES else 0.0)

    async def fetch(self, parts: Sequence[Part]) -> None:
        """Fetch parts that reads have missed, side by side."""
        if parts:
            self.files.arrivals.asked(Counter(part.file for part in parts))
            await self.parts.fetch(parts)

    async def whole(self) -> None:
        """Return when all tables are whole."""
        await self.files.whole()

    async def run(self) -> None:
        """Fetch all files, until all tables are whole; raises the first damage."""
        # Reads need all of a file's tail, and little of the rest.
        await self.parts.tails()
        await self.files.run()
        self.store.close()
        progress = self.progress
        if progress.started is None:
            return  # all tables are made of others, which were loaded whole
        progress.seconds = self.effects.clock.monotonic() - progress.started
        Event.TABLES_WHOLE.log(logger, bytes=progress.bytes, seconds=progress.seconds)

    async def close(self) -> None:
        """End what is under way."""
        await self.tasks.close()
        self.store.close()


def _lay_out(
    private: Mapping[str, bytes], files: Sequence[tuple[str, PartialFile]], directory: Path
) -> None:
    with failures(directory):
        directory.mkdir(parents=True)
        for name, data in private.items():
            (directory / name).write_bytes(data)
        for name, file in files:
            os.link(file.path, directory / name)
