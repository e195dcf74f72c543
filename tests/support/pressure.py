"""Jobs under back-pressure: sources that never pause, an operator that takes its time."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from tests.support.clock import VirtualClock, in_virtual_time
from tests.support.pipelines import Outside, Portions, config
from tidelog.checkpoint.config import CheckpointConfig
from tidelog.checkpoint.manifest import Checkpoint
from tidelog.checkpoint.slots import SlotLog
from tidelog.ids import Slot
from tidelog.runtime.channels.messages import Batch
from tidelog.runtime.config import JobConfig, UnalignedConfig
from tidelog.runtime.graph import Job, Stream
from tidelog.runtime.operators.operator import Operator
from tidelog.runtime.runner import JobResult, JobRunner
from tidelog.runtime.sink import SinkContext, SinkWriter
from tidelog.runtime.source import SplitReader
from tidelog.state.processor import StatefulProcessor, StatefulProcessorHandle, TimerValues
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectStore


class Eager(Portions):
    """Splits of records that are there all at once."""

    def open(self, split: str, position: Any) -> SplitReader:
        return _EagerReader(self.splits[split], position or 0, self.portion)


class _EagerReader(SplitReader):
    def __init__(self, records: list[Any], position: int, portion: int) -> None:
        self._records = records
        self._portion = portion
        self.position = position

    def read(self) -> list[Any] | None:
        read = self._records[self.position : self.position + self._portion]
        self.position += len(read)
        return read or None


class Slow(Operator):
    """Passes buffers on, each after a while in which nothing else in the process moves."""

    def __init__(self, clock: VirtualClock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds

    def process(self, batch: Batch) -> Iterable[Batch]:
        self._clock.spend(self._seconds)
        return (batch,)


class SlowOutside(Outside):
    """An outside that takes its time for every buffer."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self.clock = clock

    def open(self, context: SinkContext) -> SinkWriter:
        writer = super().open(context)
        write = writer.write

        def slowly(records: Sequence[Any]) -> None:
            self.clock.spend(0.2)
            write(records)

        writer.write = slowly  # type: ignore[method-assign]
        return writer


def numbered(splits: int = 4, length: int = 28, keys: int = 5, portion: int = 2) -> Portions:
    """Records (key, split, number), as fast as they are taken."""
    records = {
        f"split-{s}": [(f"k{(n * 7 + s) % keys}", s, n) for n in range(length)]
        for s in range(splits)
    }
    return Eager(records, portion)


class Numbering(StatefulProcessor):
    """Numbers the records of a key as they come."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Any:
        (count,) = self.count.get() or (0,)
        for _, split, number in rows:
            yield key[0], split, number, count
            count += 1
        self.count.update((count,))


class Alarms(StatefulProcessor):
    """A timer for each key, all due at once, whose handler takes its time."""

    def __init__(self, clock: VirtualClock, seconds: float, at: Callable[[], int]) -> None:
        self._clock = clock
        self._seconds = seconds
        self._at = at

    def init(self, handle: Any) -> None:
        self._handle = handle

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        self._handle.registerTimer(self._at())
        return ()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        self._clock.spend(self._seconds)
        yield key[0]


def numbering(stream: Stream) -> Stream:
    return stream.key_by(lambda r: r[0]).transform_with_state(Numbering)


def slowly(stream: Stream, clock: VirtualClock, seconds: float) -> Stream:
    """Behind an operator that takes its time for each buffer."""
    return stream._then("slow", lambda: Slow(clock, seconds))


def keyed_job(source: Portions, sink: Outside, clock: VirtualClock, seconds: float = 0.2) -> Job:
    """Four sources, by key, a slow operator, a two-phase sink."""
    job = Job("pressure")
    slowly(job.source(source, parallelism=4).key_by(lambda r: r[0]), clock, seconds).sink(sink)
    return job


def pressed(mode: Any = "always", *, timeout: float = 0.1, **changes: Any) -> JobConfig:
    """Deep channels, checkpoints all the time, and nothing forgotten."""
    settings = config(
        channel_buffers=8,
        retain=10_000,
        checkpoint=CheckpointConfig(interval=1.5, timeout=1e6, tolerable_failures=0),
        unaligned=UnalignedConfig(mode, timeout),
    )
    return replace(settings, **changes)


def run_pressed(
    job: Job,
    store: ObjectStore,
    settings: JobConfig,
    clock: VirtualClock,
    *,
    restore_checkpoint: Slot | None = None,
    seed: int = 1,
) -> JobResult:
    """Run one incarnation on a clock that its slow operators hold too."""
    effects = in_virtual_time(seed, clock)
    runner = JobRunner(job, store, settings, effects, restore_checkpoint=restore_checkpoint)
    return asyncio.run(runner.run())


def checkpoints(store: MemoryStore) -> list[Checkpoint]:
    """All completed checkpoints of a store, oldest first."""

    async def read() -> list[Checkpoint]:
        slots = SlotLog(store, in_virtual_time(0))
        entries = [await slots.read(slot) for slot in await slots.slots()]
        return [entry for entry in entries if isinstance(entry, Checkpoint)]

    return asyncio.run(read())


def overtaken(checkpoint: Checkpoint) -> int:
    """Buffers in flight that a checkpoint stores."""
    return sum(s.in_flight.buffers for _, s in checkpoint.subtasks() if s.in_flight is not None)


def copy_of(store: MemoryStore) -> MemoryStore:
    copied = MemoryStore(store.url)
    for name, data in store._objects.items():
        copied._store(name, data)
    return copied


def outside_as_of(sink: Outside, checkpoint: Checkpoint) -> Outside:
    """The system outside just after this checkpoint became durable and its sinks committed."""
    then = Outside()
    for token, records in sink.committed.items():
        if int(token.rsplit(b"-", 1)[1]) <= checkpoint.checkpoint_id:
            then.committed[token] = records
    return then


PressedJob = Callable[[Outside, VirtualClock], Job]


def under_pressure(job: PressedJob, settings: JobConfig) -> tuple[Outside, MemoryStore]:
    """What is outside after a job has run to its end, and its store."""
    sink, objects, clock = Outside(), MemoryStore("memory://pressure"), VirtualClock()
    run_pressed(job(sink, clock), objects, settings, clock)
    return sink, objects


def resumed(
    job: PressedJob,
    objects: MemoryStore,
    sink: Outside,
    checkpoint: Checkpoint,
    settings: JobConfig,
) -> Outside:
    """What is outside after a job went on from a checkpoint to its end, in a copy of the store."""
    again, clock = outside_as_of(sink, checkpoint), VirtualClock()
    slot = checkpoint.slot
    run_pressed(
        job(again, clock), copy_of(objects), settings, clock, restore_checkpoint=slot, seed=2
    )
    return again


def resumed_slowly(
    job: Callable[[Outside], Job],
    objects: MemoryStore,
    sink: Outside,
    chosen: Checkpoint,
    parallelism: int,
    seed: int = 2,
) -> SlowOutside:
    """What is outside, and slow, after a job went on from a checkpoint to its end."""
    clock = VirtualClock()
    again, slot = SlowOutside(clock), chosen.slot
    again.committed = outside_as_of(sink, chosen).committed
    settings = pressed(parallelism=parallelism)
    run_pressed(job(again), objects, settings, clock, restore_checkpoint=slot, seed=seed)
    return again


def assert_in_order(records: Iterable[tuple[Any, ...]]) -> None:
    """Records of one key and split come in the order they were read."""
    last: dict[tuple[Any, Any], int] = defaultdict(lambda: -1)
    for key, split, number in records:
        assert number > last[key, split], f"{number} of {key}, split {split}, after {last}"
        last[key, split] = number
