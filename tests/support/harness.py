"""A job that moves only when a test says so: the real runner, tasks, driver and collector,
with every step of its tasks taken by hand.
"""

import asyncio
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.support.clock import VirtualClock, in_virtual_time
from tidelog.changelog.upload_config import UploadConfig
from tidelog.checkpoint.config import CheckpointConfig
from tidelog.checkpoint.decisions import SavepointRequest
from tidelog.checkpoint.descriptor import decode_descriptor
from tidelog.checkpoint.manifest import Checkpoint, SubtaskState, is_canonical
from tidelog.checkpoint.retention import checkpoint_objects
from tidelog.checkpoint.slots import SlotLog
from tidelog.checkpoint.startup import History
from tidelog.connectors.program import ForeachSink, IterableSource
from tidelog.effects import Effects, InlineOffload
from tidelog.errors import TidelogError
from tidelog.ids import CheckpointId, Slot, SubtaskId
from tidelog.materialize.schedule import MaterializeConfig
from tidelog.runtime.channels.messages import Batch
from tidelog.runtime.checkpoints.driver import CheckpointDriver
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job, Stream
from tidelog.runtime.operators.operator import Operator, OperatorContext
from tidelog.runtime.restore.choose import RestoreFrom, Resumption
from tidelog.runtime.restore.plan import plan_restore
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.snapshots.snapshotter import PendingSnapshot, SubtaskPosition
from tidelog.runtime.subtasks.incarnation import Incarnation as Started
from tidelog.runtime.subtasks.incarnation import LocalSubtasks, incarnate
from tidelog.runtime.subtasks.start import JobStart
from tidelog.runtime.subtasks.state import SubtaskStates
from tidelog.state.handles.keyed import (
    AggregatingState,
    ListHandle,
    MapHandle,
    ReducingState,
    ValueHandle,
)
from tidelog.state.handles.timers import Timers
from tidelog.state.key_groups import encode_key, key_group, subtask_of
from tidelog.storage import object_names
from tidelog.storage.ledger import Ledger
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectStore

TTL_MS = 5_000
PROBE = "probe"


class Probe(Operator):
    """One state of each kind, for a test to use directly."""

    def open(self, context: OperatorContext) -> None:
        backend = self.backend = context.backend
        self.value = ValueHandle(backend, "value", "number int, text string")
        self.tags = ValueHandle(backend, "tags", "tags array<string>")
        self.ttl_value = ValueHandle(backend, "ttl-value", "number int", TTL_MS)
        self.list = ListHandle(backend, "list", "number int")
        self.ttl_list = ListHandle(backend, "ttl-list", "number int", TTL_MS)
        self.map = MapHandle(backend, "map", "key string", "number int")
        self.ttl_map = MapHandle(backend, "ttl-map", "key string", "number int", TTL_MS)
        self.reducing = ReducingState(
            ValueHandle(backend, "reducing", "number int"), lambda a, b: (max(a[0], b[0]),)
        )
        self.aggregating: AggregatingState[int, float] = AggregatingState(
            ValueHandle(backend, "aggregating", "sum int, count int"),
            create=lambda: (0, 0),
            add=lambda row, number: (row[0] + number, row[1] + 1),
            result=lambda row: row[0] / row[1],
        )
        self.timers = Timers(backend)

    def process(self, batch: Batch) -> Iterable[Batch]:
        return ()


def contents(probe: Probe, key: str) -> dict[str, Any]:
    """Everything the states say of a key, as plain values."""
    probe.backend.use_encoded_key(encode_key(key))
    found: dict[str, Any] = {
        "value": probe.value.get(),
        "tags": probe.tags.get(),
        "ttl-value": probe.ttl_value.get(),
        "list": list(probe.list.get()),
        "ttl-list": list(probe.ttl_list.get()),
        "map": dict(probe.map.iterator()),
        "ttl-map": dict(probe.ttl_map.iterator()),
        "reducing": probe.reducing.get(),
        "aggregating": probe.aggregating.get(),
        "timers": list(probe.timers.list()),
    }
    assert all(probe.map.getValue(k) == v for k, v in found["map"].items())
    return {name: value for name, value in found.items() if value not in (None, [], {})}


@dataclass(slots=True)
class Barriered:
    """A checkpoint between its barriers and its end."""

    checkpoint: CheckpointId
    pending: dict[SubtaskId, PendingSnapshot] = field(default_factory=dict)
    settled: dict[SubtaskId, SubtaskState | BaseException] = field(default_factory=dict)


class SteppedRunner(JobRunner):
    """A `JobRunner` whose tasks stand still; uploads go on by themselves."""

    async def _supervise(self, incarnation: Started) -> None:
        uploader = incarnation.start.uploader
        uploading = asyncio.ensure_future(uploader.run() if uploader else asyncio.Event().wait())
        try:
            await uploading
        finally:
            uploading.cancel()
            await asyncio.gather(uploading, return_exceptions=True)


def job_config(work_dir: Path, **changes: Any) -> JobConfig:
    """Few key groups, checkpoints and materializations by hand, never a failure too many."""
    settings: dict[str, Any] = {
        "key_groups": 4,
        "table": "memory",
        "work_dir": work_dir,
        "retain": 2,
        "checkpoint": CheckpointConfig(interval=1.0, timeout=1e9, tolerable_failures=10**9),
        "upload": UploadConfig(inline_bytes=600, segment_bytes=4000),
        "materialize": MaterializeConfig(interval=1e12),
    }
    return JobConfig(**{**settings, **changes})


class Incarnation:
    """One running job of `Probe` subtasks, and what a test does to it."""

    def __init__(
        self,
        store: ObjectStore,
        config: JobConfig,
        clock: VirtualClock,
        rng: Random,
        restore_checkpoint: Slot | None = None,
        restore_from: RestoreFrom | None = None,
    ) -> None:
        self.clock = clock
        self.config = config
        self.probes: list[Probe] = []
        effects = Effects(clock, rng, InlineOffload())
        self.runner = SteppedRunner(
            self._job(),
            store,
            config,
            effects,
            restore_checkpoint=restore_checkpoint,
            restore_from=restore_from,
        )
        self._running: asyncio.Task[Any] | None = None

    def _job(self) -> Job:
        job = Job("stepped")
        keyed = job.source(IterableSource([]), parallelism=1).key_by(lambda key: key)
        probed: Stream = keyed._then(PROBE, self._probe, keyed=True)
        probed.sink(ForeachSink(lambda _: None))
        return job

    def _probe(self) -> Probe:
        probe = Probe()
        self.probes.append(probe)
        return probe

    async def start(self) -> None:
        """Take over and restore; raises what the runner raises."""
        started = asyncio.Event()
        self._running = asyncio.ensure_future(self.runner.run(started.set))
        waiting = asyncio.ensure_future(started.wait())
        await asyncio.wait([self._running, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._running.done():
            self._running.result()
        # A start opens an operator once more before, on nothing, to see whether its states go with
        # the checkpoint.
        del self.probes[: -self.config.parallelism]

    async def crash(self) -> None:
        assert self._running is not None
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    @property
    def started(self) -> Started:
        assert self.runner.incarnation is not None
        return self.runner.incarnation

    @property
    def driver(self) -> CheckpointDriver:
        return self.started.driver

    def probe_of(self, key: str) -> Probe:
        """The probe that owns a key, with the key made current."""
        groups = self.config.key_groups
        group = key_group(encode_key(key), groups)
        probe = self.probes[subtask_of(group, groups, len(self.probes))]
        probe.backend.use_encoded_key(encode_key(key))
        return probe

    async def barrier(
        self, savepoint: SavepointRequest | None = None, *, loses_objects: bool = False
    ) -> Barriered:
        """Trigger a checkpoint, or this savepoint, and capture every subtask. With `loses_objects`
        each learns that the store has lost something when it has flushed already.
        """
        coordinator = self.driver.coordinator
        if savepoint is None:
            due = coordinator.next_event_at()
            assert due is not None
            await self.clock.advance(max(0.0, due - self.clock.monotonic()))
            self.driver.reports.decide(coordinator.tick(self.clock.monotonic()))
        else:
            self.driver.reports.decide(coordinator.savepoint(savepoint, self.clock.monotonic()))
        await self.driver.carry_out()
        checkpoint = self.driver.coordinator.in_progress
        assert checkpoint is not None
        barriered = Barriered(checkpoint)
        for task in self.started.tasks:
            canonical = savepoint is not None and savepoint.format == "canonical"
            capture = (task.parts.canonical if canonical else task.parts.snapshotter).capture
            log = task.parts.snapshotter.log
            of_table = canonical or log is None or not log.complete
            task.parts.backend.flush(settle=of_table)
            if loses_objects:
                task.parts.snapshotter.start_over()
            barriered.pending[task.id] = await capture(checkpoint, SubtaskPosition())
        return barriered

    async def settle(self, barriered: Barriered) -> None:
        """Make the parts of a barriered checkpoint durable, once; failures are remembered."""
        if not barriered.settled:
            settling = [pending.settle() for pending in barriered.pending.values()]
            settled = await asyncio.gather(*settling, return_exceptions=True)
            barriered.settled = dict(zip(barriered.pending, settled, strict=True))

    async def finish(self, barriered: Barriered) -> bool:
        """Settle a barriered checkpoint and store it; whether it completed."""
        await self.settle(barriered)
        for task_id, state in barriered.settled.items():
            if isinstance(state, SubtaskState):
                self.driver.reports.acknowledged(barriered.checkpoint, task_id, state)
            elif isinstance(state, TidelogError):
                self.driver.reports.declined(barriered.checkpoint, str(state))
            else:
                raise AssertionError from state
        completed = self.driver.metrics.completed
        await self.driver.carry_out()
        return self.driver.metrics.completed > completed

    async def drop(self, barriered: Barriered) -> None:
        self.driver.reports.declined(barriered.checkpoint, "dropped")
        await self.driver.carry_out()

    async def materialize(self, subtask: int) -> None:
        """Materialize the table of one probe; raises the store's errors."""
        for materializer in self.started.states.materializers:
            snapshots = materializer.snapshots
            if (snapshots.operator, snapshots.subtask) == (PROBE, subtask):
                await materializer.materialize()

    async def live(self) -> set[str]:
        """What the collector keeps for the running tasks."""
        return await self.started.subtasks.live_objects()


async def checkpoint_at(store: ObjectStore, slot: Slot, effects: Effects) -> Checkpoint:
    entry = await SlotLog(store, effects).read(slot)
    assert isinstance(entry, Checkpoint)
    return entry


async def reachable(store: ObjectStore, names: Iterable[str]) -> set[str]:
    """The names and, read from the store, the files of the descriptors among them."""
    found = set(names)
    for name in list(found):
        if name.startswith(object_names.MATERIALIZATIONS):
            found |= decode_descriptor(await store.get(name), name).shared_bytes.keys()
    return found


async def retained_objects(store: ObjectStore, effects: Effects) -> tuple[set[str], set[str]]:
    """(names of all slots, data objects that the checkpoints among them need)."""
    slots = SlotLog(store, effects)
    names: set[str] = set()
    needed: set[str] = set()
    for slot in await slots.slots():
        names.add(object_names.checkpoint(slot))
        entry = await slots.read(slot)
        if isinstance(entry, Checkpoint):
            needed |= await reachable(store, checkpoint_objects(entry))
    return names, needed


def assert_nothing_is_left_over(store: MemoryStore) -> None:
    """The store holds its slots and what the checkpoints among them need, and nothing else."""
    effects = in_virtual_time(0)
    names, needed = asyncio.run(retained_objects(store, effects))
    assert set(store._objects) == names | needed


async def _beside() -> None:
    """What runs beside a job only reads, and need not be the newest."""


async def read_back(
    store: ObjectStore,
    config: JobConfig,
    checkpoint: Checkpoint,
    clock: VirtualClock,
    directory: Path,
    keys: Iterable[str],
) -> dict[str, dict[str, Any]]:
    """Restore a checkpoint beside the running job and read all states."""
    incarnation = Incarnation(store, config, clock, Random(0))
    runner = incarnation.runner
    resumption = Resumption(checkpoint, detached=is_canonical(checkpoint))
    start = JobStart(
        runner.job,
        config,
        runner.effects,
        plan_restore(runner.job, resumption, config, clock),
        checkpoint.author,
        History((), {}, complete=True),
        store,
        SlotLog(store, runner.effects),
        Ledger(),
        directory,
    )
    states = SubtaskStates(start)
    try:
        await incarnate(states, LocalSubtasks(states), _beside)
        del incarnation.probes[: -config.parallelism]  # those that the plan has opened once
        return {key: contents(incarnation.probe_of(key), key) for key in keys}
    finally:
        await states.close(quietly=False)
        shutil.rmtree(directory, ignore_errors=True)
