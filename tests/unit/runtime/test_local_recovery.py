"""A restart on the same machine reads its state from local copies, if these are what was stored."""

import asyncio
import shutil
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.faults.counting import EXPECTED, checkpoints, counting, refuse_poison, settings
from tests.support.damage import cut, damage_file, flipped, lengthened, missing, needs
from tests.support.faults import SteerableStore
from tests.support.jobs import contents
from tests.support.pipelines import Outside, effects
from tests.support.workers import runner_of, with_workers
from tests.unit.verify.stores import with_objects
from tidelog import Job, JobConfig, JobRunner, UserFunctionError, status_of
from tidelog.checkpoint import local_first
from tidelog.checkpoint.local_copies import LocalCopiesStatus
from tidelog.checkpoint.local_first import LocalFirstStore
from tidelog.effects import Effects
from tidelog.ids import Generation
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectStore

COPIED = (object_names.SEGMENTS, object_names.TABLES)


class Machine:
    """A local directory, and a store that is elsewhere."""

    def __init__(self, directory: Path, workers: int = 1) -> None:
        self.workers = workers
        self.base = directory / "kept"
        self.remote = MemoryStore("memory://elsewhere")
        self.work = directory / "work"

    def copied(self, directory: Path) -> "Machine":
        machine = Machine(directory, self.workers)
        shutil.copytree(self.base, machine.base)
        with_objects(machine.remote, contents(self.remote))
        return machine

    def config(self, **changes: object) -> JobConfig:
        return settings(self.work, **{"local_recovery": self.base, **changes})

    def break_off(self, **changes: object) -> None:
        """Run the job until it breaks off after some checkpoints."""
        job = counting(Outside(), refuse_poison)
        runner = self._runner(job, self.remote, effects(), **changes)
        with pytest.raises(UserFunctionError):
            asyncio.run(runner.run())

    def finish(self, store: ObjectStore | None = None, **changes: object) -> JobRunner:
        """Run the mended job to its end: every word was counted right."""
        sink = Outside()
        remote = SteerableStore(store or self.remote)
        runner = self._runner(counting(sink), remote, effects(2), **changes)
        asyncio.run(runner.run())
        assert runner.incarnation.plan.checkpoint is not None
        assert Counter(dict(sink.records)) == EXPECTED
        assert len(sink.records) == len(EXPECTED)
        return runner

    def _runner(
        self, job: Job, store: ObjectStore, effects: Effects, **changes: object
    ) -> JobRunner:
        with with_workers(self.workers):
            return runner_of(job, store, self.config(**changes), effects)

    def copies(self) -> dict[str, Path]:
        """The copies of any store, by object."""
        (directory,) = self.base.iterdir()
        files = [path for path in directory.rglob("*") if path.is_file()]
        return {path.relative_to(directory).as_posix(): path for path in files}

    def needed(self) -> set[str]:
        """Segments and table files that the newest checkpoint needs."""
        objects = contents(self.remote)
        names = needs(objects, checkpoints(objects)[-1])
        return {name for name in names if name.startswith(COPIED)}


def fetched(runner: JobRunner) -> set[str]:
    """Segments and table files that were read from the store."""
    assert isinstance(runner.store, SteerableStore)
    return {n for operation, n in runner.store.calls if operation == "get" and n.startswith(COPIED)}


def metrics(runner: JobRunner) -> LocalCopiesStatus:
    return status_of(runner).local_copies


@pytest.fixture(scope="module", params=[1, 3], ids=["one process", "three workers"])
def broken_off(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    machine = Machine(tmp_path_factory.mktemp("machine"), request.param)
    machine.break_off()
    needed = machine.needed()
    assert any(name.startswith(object_names.TABLES) for name in needed)
    assert any(name.startswith(object_names.SEGMENTS) for name in needed)
    return machine


@pytest.fixture
def machine(broken_off: Machine, tmp_path: Path) -> Machine:
    return broken_off.copied(tmp_path)


def test_nothing_that_has_an_intact_copy_is_read_from_the_store(machine: Machine) -> None:
    needed = machine.needed()
    assert set(machine.copies()) >= needed
    runner = machine.finish()
    assert fetched(runner) == set()
    assert metrics(runner).used >= len(needed)
    assert metrics(runner).last_problem is None


@pytest.mark.parametrize("kind", COPIED)
@pytest.mark.parametrize("damage", [missing, flipped, cut, lengthened, "directory"])
def test_a_copy_that_is_missing_or_damaged_costs_one_request_and_nothing_else(
    machine: Machine, kind: str, damage: Any
) -> None:
    harmed = min(name for name in machine.needed() if name.startswith(kind))
    path = machine.copies()[harmed]
    damage_file(path, missing if damage == "directory" else damage)
    if damage == "directory":
        path.mkdir()
    assert fetched(machine.finish()) == {harmed}


@pytest.mark.parametrize("kind", COPIED)
def test_an_intact_copy_of_another_object_is_no_copy_of_this_one(
    machine: Machine, kind: str
) -> None:
    mine, *_ = sorted(name for name in machine.needed() if name.startswith(kind))
    copies = machine.copies()
    others = [name for name in copies if name.startswith(kind) and name != mine]
    for other in others:
        if copies[other].read_bytes() != copies[mine].read_bytes():
            shutil.copyfile(copies[other], copies[mine])
            break
    else:
        raise AssertionError("the job was meant to write several")
    assert mine in fetched(machine.finish())


def test_copies_of_an_older_generation_that_still_count_are_used(machine: Machine) -> None:
    """Broken off twice: what the second start restored, it took over and did not write again."""
    machine.break_off()
    generations = {object_names.generation_of(name) for name in machine.needed()}
    assert len(generations) > 1
    assert fetched(machine.finish()) == set()


def test_copies_of_another_store_are_never_looked_at(machine: Machine, tmp_path: Path) -> None:
    """The same job elsewhere: even where names agree, each store has copies of its own."""
    other = with_objects(MemoryStore("memory://another"), contents(machine.remote))
    needed = machine.needed()
    assert fetched(machine.finish(other)) == needed


def test_copies_are_those_of_what_is_retained_and_go_with_it(machine: Machine) -> None:
    machine.finish(retain=1)
    stored = {name for name in contents(machine.remote) if name.startswith(COPIED)}
    assert set(machine.copies()) == stored


@pytest.mark.parametrize("workers", [1, 3])
def test_the_copies_never_take_more_than_their_limit(tmp_path: Path, workers: int) -> None:
    machine = Machine(tmp_path, workers)
    limit = 3_000 * workers
    machine.break_off(local_recovery_bytes=limit)
    sizes = [path.stat().st_size for path in machine.copies().values()]
    assert 0 < sum(sizes) <= limit
    runner = machine.finish(local_recovery_bytes=limit)
    assert fetched(runner)
    assert metrics(runner).refused > 0


def test_a_disk_that_refuses_copies_does_not_stop_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    machine = Machine(tmp_path)
    monkeypatch.setattr(local_first.local_copies, "write", full)
    monkeypatch.setattr(local_first.local_copies, "link", full)
    machine.break_off()
    runner = machine.finish()
    assert machine.copies() == {}
    assert metrics(runner).refused > 0
    assert metrics(runner).last_problem.endswith("No space left on device")


def test_what_a_crash_left_unfinished_is_removed(machine: Machine) -> None:
    (directory,) = machine.base.iterdir()
    (directory / "unfinished" / "token").write_bytes(b"half")
    machine.finish()
    assert list((directory / "unfinished").iterdir()) == []


async def test_an_older_job_that_makes_a_copy_meanwhile_stops_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)  # it is there again
    for _ in range(2):
        await LocalFirstStore.open(MemoryStore(), tmp_path, 10_000, effects())


async def test_the_store_is_written_first(tmp_path: Path) -> None:
    """A copy of something that the store does not have would be worse than none."""
    name = object_names.segment(Generation(0), "p", 1)
    remote = SteerableStore(MemoryStore())
    remote.hold(object_names.SEGMENTS)
    store = await LocalFirstStore.open(remote, tmp_path, 10_000, effects())
    writing = asyncio.ensure_future(store.put(name, b"data"))
    while not remote.waiting:
        await asyncio.sleep(0)
    assert store.copies == frozenset()
    remote.release()
    await writing
    assert store.copies == {name}


async def test_reads_of_parts_are_parts_of_the_copy(tmp_path: Path) -> None:
    name = object_names.segment(Generation(0), "p", 1)
    data = Random(1).randbytes(1000)
    remote = SteerableStore(MemoryStore())
    store = await LocalFirstStore.open(remote, tmp_path, 10_000, effects())
    await store.put(name, data)
    for start, length in [(0, 10), (10, 500), (990, 100), (2000, 5), (7, None), (0, None)]:
        expected = data[start:] if length is None else data[start : start + length]
        assert await store.get(name, start, length) == expected
    assert not [call for call in remote.calls if call[0] == "get"]
    await store.delete(name)
    assert store.copies == frozenset() and store.status().bytes == 0


async def test_workers_share_what_they_found_and_divide_the_room_that_is_left(
    tmp_path: Path,
) -> None:
    remote, limit = MemoryStore(), 1_000
    found, *names = [object_names.segment(Generation(0), "p", n) for n in range(20)]
    parent = await LocalFirstStore.open(remote, tmp_path, limit, effects())
    await parent.put(found, bytes(384))
    one, other = [
        await LocalFirstStore.open(remote, tmp_path, limit, effects(), workers=2) for _ in range(2)
    ]
    assert await one.get(found) == await other.get(found) == bytes(384)
    for store, own in ((one, names[:4]), (other, names[4:8])):
        for name in own:
            await store.put(name, bytes(84))
        assert store.copies == set(own[:3])  # of 100 bytes each, in 300 bytes
    assert sum(each.status().bytes for each in (parent, one, other)) == limit

    await parent.delete(found)
    await parent.delete(names[0])
    for store, added in ((one, names[8:13]), (other, names[13:18])):
        await store.recount()
        for name in added:
            await store.put(name, bytes(84))
    assert len(one.copies) == len(other.copies) == 5
