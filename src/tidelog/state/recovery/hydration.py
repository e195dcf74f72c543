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
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

from tidelog.checkpoint.descriptor import Descriptor, TableObject
from tidelog.concurrency import SharedTasks, together
from tidelog.effects import Aside, Effects
from tidelog.errors import CorruptObjectError, StoreUnreachableError
from tidelog.events import Event
from tidelog.state.recovery.arrivals import Arrivals
from tidelog.state.recovery.partial_file import PartialFile
from tidelog.state.recovery.parts import Call, Part, in_calls, long_wait_logged, read_call
from tidelog.state.recovery.progress import HydrationProgress, RestoreProgress
from tidelog.storage.port import ObjectStore
from tidelog.table.failures import failures
from tidelog.table.holes import ANYWHERE, Hole, check_room, make_placeholder
from tidelog.table.port import Serve, ServedTable

logger = logging.getLogger(__name__)

TAILS_S: Final = 1.5
"""So long a start waits for the tails of all files. With them RocksDB opens each file once and for
good; without, it opens those that are read first, and a look-up in them takes a little longer."""
_CHECKED_AT_ONCE: Final = 2
"""Files that are checked and written at a time: others need threads of the pool, too."""
_CALLS_AT_ONCE: Final = 64
"""Calls for parts of files that are under way at a time."""
_SLOW_S: Final = 0.08
"""A call that takes longer is made again, and once more when so much time has passed, ..."""
_MANY: Final = 5
"""... if no more than one of so many of a buffer is: else the link or the machine is slow."""
_TIMES_AGAIN: Final = 3
"""... so often at most: one of a thousand requests takes a second, and a call has some."""
_WAIT_LIMIT_S: Final = 120.0
"""A read waits no longer for a part: the store gives its requests up before."""
_RETRY_PAUSE_S: Final = 1.0

Range = tuple[bytes, bytes]
"""Row keys from the first to before the second."""


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
            at_once = self.hydration.concurrency  # of whole files no more are in memory
        else:
            parts, at_once = self.of(holes), len(holes)
        missing = [part for part in parts if not part.file.is_whole]
        while missing:
            self.hydration.wait_for(missing[:at_once], ahead)
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
    _was_stalled: bool = False
    on_whole: Callable[[], None] = lambda: None

    @property
    def is_whole(self) -> bool:
        """Whether reads meet no hole any more."""
        return self.arrived.is_set()

    def begin(self, fetch: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Begin a fetch for what comes later; it ends with the process's hydration."""
        return self.parts.hydration.begin(fetch)

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

    async def ensure(self, keys: list[bytes], ranges: Sequence[Range] = (), rows: int = 1) -> None:
        """Fetch what is missing to read these keys, and the first rows of these ranges of keys.

        Waits while the store does not answer. Raises what reads raise.
        """
        hydration, filled = self.parts.hydration, set[Hole]()
        while not self.is_whole and (keys or ranges):
            # In a thread of its own: those of the pool check the files that arrive.
            keys, ranges, holes = await hydration.effects.offload.wait(
                self.table.gaps, keys, ranges, rows
            )
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
        self.parts.hydration.arrivals.leave(self)


@dataclass(slots=True)
class Hydration:
    """Fetches the files of all tables of a process that serve before they are whole."""

    store: ObjectStore
    effects: Effects
    restore: RestoreProgress
    """What arrives later is no part of the restore."""
    directory: Path
    """For placeholders; absent before."""
    concurrency: int
    """Whole files that are fetched at a time."""
    arrivals: Arrivals[PartialFile, TableHydration] = field(default_factory=Arrivals)
    _files: dict[str, PartialFile] = field(default_factory=dict)
    """The files of all tables, by the name of their object in the store."""
    _placing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _numbers: "count[int]" = field(default_factory=count)
    _fetching: dict[Part, "asyncio.Task[None]"] = field(default_factory=dict)
    """The calls under way, by each of their parts."""
    _times_again: "Counter[asyncio.Task[None]]" = field(default_factory=Counter)
    """How often each of the calls was made again."""
    _tasks: SharedTasks = field(default_factory=SharedTasks)
    _permits: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_CALLS_AT_ONCE))
    _aside: Aside = field(init=False)
    _apart: ObjectStore | None = None
    """The store for the event loop aside; None until it is needed."""
    _checks: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_CHECKED_AT_ONCE))
    _finished: asyncio.Event = field(default_factory=asyncio.Event)
    _is_away: bool = False
    """The store has not answered last."""

    def __post_init__(self) -> None:
        self._aside = self.effects.aside(self.effects)

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
            self.arrivals.add(served, files.values())
        else:
            await self._whole(served)
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
        """Begin to fetch the tails of files; whether all are here in `TAILS_S`."""
        # The newest first: without the others RocksDB opens these, one after the other.
        newest_first = reversed(list(files))
        fetches = self._start([Part(file, None, 0) for file in newest_first])
        late: set[asyncio.Task[None]] = set()
        if fetches:
            here, late = await asyncio.wait(fetches, timeout=TAILS_S)
            for fetch in here:
                fetch.result()
        return not late

    async def _fetch_call(self, call: Call) -> None:
        async with self._permits:
            await self._patiently(partial(read_call, call, self.store, self.effects.offload))
        self.progress.blocks += sum([part.offset is not None for part in call])

    def _start(self, parts: Sequence[Part]) -> "list[asyncio.Task[None]]":
        """The tasks that fetch parts of files, one of each part for all who wait for it."""
        fetching = self._fetching
        tasks = {task: None for part in parts if (task := fetching.get(part)) is not None}
        for call in in_calls(part for part in parts if part not in fetching):
            task = self._tasks.start(self._fetch_call(call))
            fetching.update(dict.fromkeys(call, task))
            task.add_done_callback(partial(self._fetched, call))
            tasks[task] = None
        return list(tasks)

    def _fetched(self, call: Call, task: "asyncio.Task[None]") -> None:
        for part in call:
            self._fetching.pop(part, None)
        del self._times_again[task]

    def begin(self, fetch: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        return self._tasks.start(fetch)

    async def fetch(self, parts: Sequence[Part]) -> None:
        """Fetch parts of files side by side."""
        if not parts:
            return
        self.arrivals.asked(Counter(part.file for part in parts))
        tasks = self._start(parts)
        late = set(tasks)
        with long_wait_logged(parts):
            while late:
                _, late = await asyncio.wait(late, timeout=_SLOW_S)
                if late and len(late) * _MANY <= len(tasks) + _MANY:
                    self._hedge(late)
        for task in tasks:
            if not task.cancelled():
                task.result()

    def _hedge(self, late: "Set[asyncio.Task[None]]") -> None:
        """Make slow calls once more: of hundreds of requests some are, and all wait for them."""
        calls: dict[asyncio.Task[None], list[Part]] = {}
        for part, task in self._fetching.items():
            if task in late and self._times_again[task] < _TIMES_AGAIN:
                calls.setdefault(task, []).append(part)
        for first, call in calls.items():
            self._times_again[first] += 1
            second = self._tasks.start(read_call(call, self.store, self.effects.offload))
            second.add_done_callback(partial(_answered, first))

    def wait_for(self, parts: Sequence[Part], ahead: int) -> None:
        """Fetch parts while the calling thread waits; raises what the store raises."""
        progress, now = self.progress, self.effects.clock.monotonic
        started = now()
        try:
            self._aside.run(lambda: self._read_apart(parts, ahead), _WAIT_LIMIT_S)
        except TimeoutError as cause:
            raise StoreUnreachableError(
                f"object {parts[0].file.object.object}",
                expected="an answer of the store",
                found=f"none in {_WAIT_LIMIT_S:g} s",
                action="find out why the store does not answer, then restart the job",
            ) from cause
        progress.waits += 1
        progress.waited_s += now() - started
        progress.blocks += len(parts)

    async def _read_apart(self, parts: Sequence[Part], ahead: int) -> None:
        """In the event loop aside."""
        if self._apart is None:
            self._apart = self.store.apart(self._aside.effects)
        offload = self._aside.effects.offload
        calls = [read_call(call, self._apart, offload, ahead) for call in in_calls(parts)]
        with long_wait_logged(parts):
            await together(calls, _CALLS_AT_ONCE)

    async def whole(self) -> None:
        """Return when all tables are whole."""
        await self._finished.wait()

    async def run(self) -> None:
        """Fetch all files, until all tables are whole; raises the first damage."""
        # Reads need all of a file's tail, and little of the rest.
        tails = [task for part, task in self._fetching.items() if part.offset is None]
        await together(map(self._tasks.wait, tails))
        await together([self._fetch_files() for _ in range(self.concurrency)])
        self._close_aside()
        self._finished.set()
        progress = self.progress
        if progress.started is None:
            return  # all tables are made of others, which were loaded whole
        progress.seconds = self.effects.clock.monotonic() - progress.started
        Event.TABLES_WHOLE.log(logger, bytes=progress.bytes, seconds=progress.seconds)

    async def _fetch_files(self) -> None:
        while (file := self.arrivals.next()) is not None:
            await self._patiently(partial(self._fetch_whole, file))
            self.progress.bytes += file.object.size
            await self.effects.offload.run(file.path.unlink, True)
            for served in self.arrivals.arrived(file):
                await self._whole(served)

    async def _fetch_whole(self, file: PartialFile) -> None:
        if file.is_whole:
            return
        data = await file.content(self.store)
        async with self._checks:
            await self.effects.offload.run_to_end(file.complete, data)

    async def _whole(self, served: TableHydration) -> None:
        await self.effects.offload.run_to_end(served.table.whole)
        served.arrived.set()
        served.on_whole()

    async def _patiently(self, read: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Read from the store, again and again while it does not answer."""
        while True:
            try:
                await read()
            except StoreUnreachableError as error:
                if not self._is_away:
                    Event.TABLES_WAIT.log(logger, error=error)
                self._is_away = True
            else:
                self._is_away = False
                return
            await self.effects.clock.sleep(_RETRY_PAUSE_S)

    async def close(self) -> None:
        """End what is under way."""
        await self._tasks.close()
        self._close_aside()

    def _close_aside(self) -> None:
        # Where requests were sent from the event loop aside, their connections end there.
        self._aside.close(self._apart.close if self._apart is not None else None)


def _answered(first: "asyncio.Task[None]", second: "asyncio.Task[None]") -> None:
    if not second.cancelled() and second.exception() is None:
        first.cancel()


def _lay_out(
    private: Mapping[str, bytes], files: Sequence[tuple[str, PartialFile]], directory: Path
) -> None:
    with failures(directory):
        directory.mkdir(parents=True)
        for name, data in private.items():
            (directory / name).write_bytes(data)
        for name, file in files:
            os.link(file.path, directory / name)
