"""A job that slept through its successors wakes up fenced: it changes and commits nothing."""

import asyncio
from collections import Counter

import pytest

from tests.faults.counting import EXPECTED, settings, source
from tests.support.clock import VirtualClock, in_virtual_time
from tests.support.damage import of_a_newer_release
from tests.support.faults import SteerableStore
from tests.support.pipelines import Outside, copy
from tidelog import JobResult, JobRunner, SinkContext, SinkWriter
from tidelog.checkpoint.manifest import Start, decode_entry
from tidelog.errors import FencedError, StorageError
from tidelog.ids import CheckpointId, Slot
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectStore


class World:
    """One store and one system behind the sinks; incarnations share a clock."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.objects = MemoryStore()
        self.sink = Outside()
        self.sleepy = SteerableStore(self.objects)

    async def run(self, store: ObjectStore, seed: int) -> JobResult:
        effects = in_virtual_time(seed, self.clock)
        return await JobRunner(copy(source(), self.sink), store, settings(retain=1), effects).run()

    async def fall_asleep(self, at: str) -> "asyncio.Task[JobResult]":
        """A job with some checkpoints that hangs in its next write of such an object."""
        older = asyncio.ensure_future(self.run(self.sleepy, 1))
        while object_names.checkpoint(Slot(3)) not in self.objects_named(object_names.CHECKPOINTS):
            await self.pause(older)
        self.sleepy.hold(at)
        while not self.sleepy.waiting:
            await self.pause(older)
        return older

    async def pause(self, running: "asyncio.Task[JobResult]") -> None:
        assert not running.done(), "the job ended too early"
        await self.clock.sleep(0.05)

    def objects_named(self, prefix: str) -> set[str]:
        return {name for name in self.objects._objects if name.startswith(prefix)}


async def wakes_up_fenced(world: World, older: "asyncio.Task[JobResult]") -> None:
    before = (dict(world.objects._objects), list(world.sink.records), Counter(world.sink.commits))
    slots = world.objects_named(object_names.CHECKPOINTS)
    world.sleepy.release()
    with pytest.raises(FencedError) as fenced:
        await older
    assert "let the newer process go on" in fenced.value.action
    assert world.objects_named(object_names.CHECKPOINTS) == slots
    assert before[0].items() <= world.objects._objects.items()
    assert before[1:] == (list(world.sink.records), Counter(world.sink.commits))


@pytest.mark.parametrize("at", [object_names.CHECKPOINTS, object_names.SEGMENTS])
@pytest.mark.parametrize("successors", [1, 3])
async def test_a_zombie_commits_nothing_however_late_it_wakes(at: str, successors: int) -> None:
    world = World()
    older = await world.fall_asleep(at)
    for number in range(successors - 1):
        newer = asyncio.ensure_future(world.run(world.objects, 10 + number))
        await world.clock.sleep(2.5)
        newer.cancel()
        await asyncio.gather(newer, return_exceptions=True)
    await world.run(world.objects, 20)
    assert Counter(world.sink.records) == EXPECTED
    assert object_names.checkpoint(Slot(3)) not in world.objects._objects, "retention was at work"
    await wakes_up_fenced(world, older)
    assert Counter(world.sink.records) == EXPECTED


async def test_a_zombie_of_this_release_knows_that_a_newer_release_took_over() -> None:
    world = World()
    older = await world.fall_asleep(object_names.CHECKPOINTS)
    name, taken = await start_of_newer_release(world)
    await wakes_up_fenced(world, older)
    assert await world.objects.get(name) == taken


class FencingSink(Outside):
    """Takes nothing more from an older generation once a newer one has opened, as Kafka does."""

    def __init__(self) -> None:
        super().__init__()
        self.newest = -1

    def open(self, context: SinkContext) -> SinkWriter:
        self.newest = max(self.newest, context.generation)
        writer = super().open(context)
        pre_commit = writer.pre_commit

        def refuse(checkpoint: CheckpointId) -> bytes | None:
            if context.generation < self.newest:
                raise StorageError("transaction", found="a newer producer", action="stop")
            return pre_commit(checkpoint)

        writer.pre_commit = refuse  # type: ignore[method-assign]
        return writer


async def test_a_job_whose_checkpoints_all_fail_since_its_successor_started_ends_fenced() -> None:
    world = World()
    world.sink = FencingSink()
    older = asyncio.ensure_future(world.run(world.objects, 1))
    while object_names.checkpoint(Slot(1)) not in world.objects_named(object_names.CHECKPOINTS):
        await world.pause(older)
    newer = asyncio.ensure_future(world.run(world.objects, 2))
    # None of its checkpoints gets as far as its slot, and as many as these may fail.
    with pytest.raises(FencedError, match="generation 0 was fenced"):
        await older
    await newer
    assert Counter(world.sink.records) == EXPECTED


async def start_of_newer_release(world: World) -> tuple[str, bytes]:
    last = max(world.objects_named(object_names.CHECKPOINTS))
    slot = object_names.slot_of(last)
    assert slot is not None
    first = await world.objects.get(object_names.checkpoint(Slot(0)))
    assert isinstance(decode_entry(first, object_names.checkpoint(Slot(0))), Start)
    name, taken = object_names.checkpoint(Slot(slot + 1)), of_a_newer_release(first)
    await world.objects.create(name, taken)
    return name, taken
