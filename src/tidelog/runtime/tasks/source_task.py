"""Source tasks: read splits, keep their positions as keyed state, start the barriers.

Invariants: a split's position changes together with the emission of the records before it, with
no barrier in between; splits are keyed state, so they follow their key groups in a rescale.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

import msgspec

from tidelog.changelog.change import prefix_end
from tidelog.effects import Effects, wait_for
from tidelog.ids import CheckpointId
from tidelog.runtime.blame import blame
from tidelog.runtime.channels.messages import Barrier, Batch
from tidelog.runtime.source import Source, SplitReader
from tidelog.runtime.tasks.parts import TaskParts
from tidelog.runtime.tasks.task import Task
from tidelog.state.backend import KeyedBackend
from tidelog.state.key_groups import encode_key, key_group

P = ParamSpec("P")
T = TypeVar("T")

IDLE_S = 0.1
"""How long a source without input waits before it looks again."""


class SplitEnumerator:
    """Finds splits once for all subtasks of a source."""

    def __init__(self, source: Source, effects: Effects) -> None:
        self._source = source
        self._effects = effects
        self._found: list[str] | None = None
        self._found_at = 0.0
        self._lock = asyncio.Lock()

    async def splits(self) -> list[str]:
        """All splits known now; looks again when the source asks for it."""
        async with self._lock:
            now = self._effects.clock.monotonic()
            again = self._source.rediscover_s
            if self._found is None or (again is not None and now - self._found_at >= again):
                self._found = await self._effects.offload.run(_discover, self._source)
                self._found_at = now
            return self._found


def _discover(source: Source) -> list[str]:
    return list(source.discover())


class SplitPositions:
    """Positions of the splits one subtask owns, as keyed state."""

    def __init__(self, backend: KeyedBackend) -> None:
        self._backend = backend
        info = backend.registry.register("$splits", "splits", ("msgpack",))
        self._state = info.id.to_bytes(2, "big")
        decode = msgspec.msgpack.Decoder().decode
        self._rows = backend.rows(info, msgspec.msgpack.Encoder().encode, decode, scanned=True)

    def owns(self, split: str) -> bool:
        """Whether the split belongs to this subtask."""
        return key_group(encode_key(split), self._backend.key_groups) in self._backend.owned

    def get(self, split: str) -> tuple[bool, Any]:
        """(done, position) of a split; (False, None) for a new one."""
        stored = self._rows.get(self._row(split))
        return (stored[0], stored[1]) if stored is not None else (False, None)

    def put(self, split: str, *, done: bool, position: Any) -> None:
        """Store where a split stands."""
        self._rows.put(self._row(split), [done, position])

    def started(self) -> Iterable[str]:
        """Splits with a stored position."""
        for group in range(self._backend.owned.first, self._backend.owned.last + 1):
            prefix = group.to_bytes(2, "big") + self._state
            for row, _ in self._rows.scan(prefix, prefix_end(prefix)):
                yield msgspec.msgpack.decode(row[len(prefix) :], type=str)

    def _row(self, split: str) -> bytes:
        key = encode_key(split)
        group = key_group(key, self._backend.key_groups).to_bytes(2, "big")
        return group + self._state + key


class SourceTask(Task):
    """Reads one split after the other, endless ones in turns."""

    def __init__(self, parts: TaskParts, source: Source, enumerator: SplitEnumerator) -> None:
        super().__init__(parts)
        self._source = source
        self._enumerator = enumerator
        self._positions = SplitPositions(parts.backend)
        self._barriers: deque[Barrier] = deque()
        self._wake = asyncio.Event()
        self._open: dict[str, SplitReader] = {}
        self._queue: deque[str] = deque()
        self._seen: set[str] = set()
        self._draining = False
        parts.output.notify(self._wake.set)

    def _start(self, barrier: Barrier) -> None:
        """After the records read so far."""
        self._barriers.append(barrier)
        self._wake.set()

    def drain(self) -> None:
        """Read no more: the data ends here."""
        self._draining = True
        self._wake.set()

    def abort(self, checkpoint: CheckpointId) -> None:
        super().abort(checkpoint)
        self._wake.set()

    def _wake_up(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        clock = self.parts.effects.clock
        try:
            await self._resume()
            while await self._goes_on():
                if not self.parts.output.available:
                    await self._wait_for_room()
                elif await self._read_some():
                    break
                await clock.sleep(0)
            # A job that was stopped otherwise goes on some day.
            await self._end(drain=not self._leaving)
            while not self._leaving:
                await self._handle_barriers()
                self._wake.clear()
                if not self._leaving:
                    await self._wake.wait()
            await self._exit()
        finally:
            self._stop()
            for reader in self._open.values():
                with blame(self.id.vertex):
                    reader.close()

    async def _goes_on(self) -> bool:
        """Whether to read more, after checkpoints that are due."""
        await self._handle_barriers()
        return not (self._leaving or self._draining)

    async def _handle_barriers(self) -> None:
        while self._barriers or (self._held is not None and not self._leaving):
            if self._barriers:
                await self._checkpoint(self._barriers.popleft(), self._now())
            else:
                self._wake.clear()
                await self._wake.wait()

    async def _wait_for_room(self) -> None:
        """Until the output has room, or a barrier wants to pass."""
        self._wake.clear()
        if not self._barriers and not self.parts.output.available:
            with self.parts.output.work.waiting():
                await self._wake.wait()

    async def _read_some(self) -> bool:
        """Read one buffer, or wait a little when there is none; True at the end of the data."""
        if not self._queue or self._source.rediscover_s is not None:
            await self._find_splits()
        if not self._queue:
            if self._source.rediscover_s is None:
                return True
            await self._idle(IDLE_S)
            return False
        empty = 0
        while self._queue and empty < len(self._queue):
            split = self._queue[0]
            reader = await self._reader(split)
            records = await self._call(reader.read)
            if records is None:
                self._queue.popleft()
                with blame(self.id.vertex):
                    self._open.pop(split).close()
                self._positions.put(split, done=True, position=reader.position)
                continue
            if records:
                self._positions.put(split, done=False, position=reader.position)
                await self._emit_read(records)
                return False
            self._queue.rotate(-1)
            empty += 1
        if self._queue:
            await self._idle(min(self._open[s].delay_s or IDLE_S for s in self._queue))
        return False

    async def _emit_read(self, records: list[Any]) -> None:
        self.parts.metrics.records_in += len(records)
        with self.parts.output.work.working():
            await self._emit(self.parts.chain.process(Batch(records)))
            made = self.parts.chain.generated_watermark()
            if made is not None:
                await self._advance_watermark(made)
            await self._flush_if_due()

    async def _find_splits(self) -> None:
        with blame(self.id.vertex):
            splits = await self._enumerator.splits()
        # A split that was begun and is gone is opened all the same: the source says what is lost.
        begun = [] if self._seen else list(self._positions.started())
        for split in itertools.chain(splits, begun):
            if split not in self._seen and self._positions.owns(split):
                self._seen.add(split)
                if not self._positions.get(split)[0]:
                    self._queue.append(split)

    async def _reader(self, split: str) -> SplitReader:
        if split not in self._open:
            _, position = self._positions.get(split)
            reader = await self._call(self._source.open, split, position)
            reader.notify(self._wake.set)
            self._open[split] = reader
        return self._open[split]

    async def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call into the source, in a thread when it blocks; its errors carry our name."""
        with blame(self.id.vertex):
            if self._source.blocking:
                return await self.parts.effects.offload.run(function, *args, **kwargs)
            return function(*args, **kwargs)

    async def _idle(self, seconds: float) -> None:
        """Wait for a barrier, a stop or for time to pass."""
        self._wake.clear()
        if not self._barriers:
            await wait_for(self._wake, self.parts.effects.clock, seconds)
