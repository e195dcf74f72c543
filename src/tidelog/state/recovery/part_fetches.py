"""The parts of files that are on their way: each is fetched once for all who wait for it.

Invariants: what is slow is asked for again (`pacing`); a wait that takes long is named in the log;
a reading thread waits no longer than `_WAIT_LIMIT_S`.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Final

from tidelog.concurrency import SharedTasks, together
from tidelog.effects import Offload
from tidelog.errors import StoreUnreachableError
from tidelog.state.recovery.file_store import FileStore
from tidelog.state.recovery.pacing import Patience
from tidelog.state.recovery.parts import Call, Part, in_calls, long_wait_logged, read_call
from tidelog.state.recovery.progress import HydrationProgress
from tidelog.storage.port import ObjectStore

_CALLS_AT_ONCE: Final = 256
"""Calls for parts of files that are under way at a time, ..."""
_TAIL_CALLS_AT_ONCE: Final = 32
"""... and for their tails: the log is read meanwhile, and takes longer to replay."""
_FEW: Final = 10
"""When no more than one of so many calls for tails is missing, it is made again."""
_WAIT_LIMIT_S: Final = 120.0
"""A read waits no longer for a part: the store gives its requests up before."""


@dataclass(slots=True)
class PartFetches:
    """The calls under way of a process."""

    store: FileStore
    progress: HydrationProgress
    tasks: SharedTasks
    _fetching: dict[Part, "asyncio.Task[None]"] = field(default_factory=dict)
    """The calls under way, by each of their parts."""
    _patience: Patience = field(default_factory=Patience)
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _permits: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_CALLS_AT_ONCE))
    _tail_permits: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(_TAIL_CALLS_AT_ONCE)
    )

    async def fetch(self, parts: Sequence[Part]) -> None:
        """Fetch parts of files side by side; waits while the store does not answer."""
        with long_wait_logged(parts):
            await together(map(self.tasks.wait, self._start(parts)))

    async def fetch_tails(self, tails: Sequence[Part], seconds: float) -> bool:
        """Begin to fetch the tails of files; whether all are here in so many seconds."""
        late, again, is_again = set(self._start(tails)), set[asyncio.Task[None]](), False
        few, now = len(late) // _FEW, self.store.effects.clock.monotonic
        end = now() + seconds
        while late and (again or not is_again):
            if len(late) <= few and not is_again:
                # One of a thousand requests takes a second, and all wait for it.
                parts = [part for part in tails if self._fetching.get(part) in late]
                again = {self.tasks.start(self._fetch_call(call)) for call in in_calls(parts)}
                is_again = True
            here, _ = await asyncio.wait(
                late | again, timeout=max(0.0, end - now()), return_when=asyncio.FIRST_COMPLETED
            )
            if not here:
                return False
            for task in here:
                task.result()
            late -= here
            again -= here
        return True

    async def tails(self) -> None:
        """Return when the tails that are on their way are here."""
        under_way = [task for part, task in self._fetching.items() if part.offset is None]
        await together(map(self.tasks.wait, under_way))

    def _start(self, parts: Sequence[Part]) -> "list[asyncio.Task[None]]":
        """The tasks that fetch parts of files, one of each part for all who wait for it."""
        fetching = self._fetching
        tasks = {task: None for part in parts if (task := fetching.get(part)) is not None}
        for call in in_calls(part for part in parts if part not in fetching):
            task = self.tasks.start(self._fetch_call(call))
            fetching.update(dict.fromkeys(call, task))
            task.add_done_callback(partial(self._fetched, call))
            tasks[task] = None
        return list(tasks)

    async def _fetch_call(self, call: Call) -> None:
        store, offload = self.store.store, self.store.effects.offload
        left, attempts, are_tails = call, self._patience.attempts(), call[0].offset is None
        async with self._tail_permits if are_tails else self._permits:
            while left:
                # Tails are many bytes: what takes long then is the link.
                seconds, asked = None if are_tails else next(attempts), len(left)
                read = partial(read_call, left, store, offload, self._writing, 0, seconds)
                left = await self.store.patiently(read)
                if seconds is not None:
                    self._patience.seen(asked, len(left))
        if not are_tails:
            self.progress.blocks += len(call)

    def _fetched(self, call: Call, _: "asyncio.Task[None]") -> None:
        for part in call:
            self._fetching.pop(part, None)

    def wait_for(self, parts: Sequence[Part], ahead: int) -> None:
        """Fetch parts while the calling thread waits; raises what the store raises."""
        progress, now = self.progress, self.store.effects.clock.monotonic
        started = now()
        try:
            self.store.wait_for(partial(_read_apart, parts, ahead), _WAIT_LIMIT_S)
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


async def _read_apart(
    parts: Sequence[Part], ahead: int, store: ObjectStore, offload: Offload
) -> None:
    writing = asyncio.Lock()
    with long_wait_logged(parts):
        while parts:  # of a tail there may be more than was thought
            calls = [read_call(call, store, offload, writing, ahead) for call in in_calls(parts)]
            parts = list(chain.from_iterable(await together(calls, _CALLS_AT_ONCE)))
