"""A job that begins before its state is here gives the results of one that waits for it."""

import asyncio
import base64
import copy
import re
import shutil
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import early_starts
from tests.support.damage import flipped_at
from tests.support.depth import more_in_depth
from tests.support.early_starts import AFTER, BEFORE, Fed, durable, finish, read, started, until
from tests.support.faults import Fault, FaultKind, SteerableStore
from tests.support.jobs import contents
from tests.support.pipelines import Outside
from tests.unit.verify.stores import with_objects
from tidelog import JobRunner, MaterializeConfig, RestoreConfig, open_store
from tidelog.effects import Offload
from tidelog.errors import CorruptObjectError, StoreFullError, StoreUnreachableError
from tidelog.runtime.status.observe import status_of
from tidelog.state.recovery.partial_file import PartialFile
from tidelog.storage.memory import MemoryStore
from tidelog.storage.object_names import TABLES
from tidelog.storage.port import ObjectPart, ObjectStore
from tidelog.table.hydrating import HydratingTable
from tidelog.table.sst_tail import FOOTER_BYTES

Logged = Callable[[str], list[dict[str, Any]]]


class Held:
    """Whole files arrive when they are released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.asked = 0


class SlowParts(SteerableStore):
    """The first three calls for some parts of objects get no answer."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.slow = frozenset[ObjectPart]()
        self.asked = 0

    async def get_parts(
        self, parts: Sequence[ObjectPart], patience_s: float | None = None
    ) -> Sequence[bytes | None]:
        if patience_s is not None:
            self.slow = self.slow or frozenset(parts)
        if self.slow == frozenset(parts):
            self.asked += 1
            if self.asked <= 3:
                assert patience_s is not None
                await asyncio.sleep(patience_s)
                return [None] * len(parts)
        return await super().get_parts(parts, patience_s)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    files, fetch = Held(), PartialFile.fetch_rest

    async def later(
        file: PartialFile, store: ObjectStore, offload: Offload, arrived: Callable[[int], None]
    ) -> None:
        files.asked += 1
        while not files.released.is_set():
            await asyncio.sleep(0.01)
        await fetch(file, store, offload, arrived)

    monkeypatch.setattr(PartialFile, "fetch_rest", later)
    return files


def restored() -> tuple[MemoryStore, Outside]:
    """A store of a test's own, and the output so far."""
    objects, sink = early_starts.state()
    return with_objects(MemoryStore(), objects), copy.deepcopy(sink)


def check(sink: Outside) -> None:
    """Everything was emitted once, and is right."""
    assert len(sink.records) == BEFORE + AFTER
    assert set(sink.records) == early_starts.expected()


def test_records_are_handled_and_checkpointed_before_a_file_is_here(held: Held) -> None:
    store, sink = restored()

    async def run() -> None:
        async with started(store, sink, Fed(BEFORE + AFTER - 1)) as runner:
            await until(lambda: read(runner) == AFTER - 1)
            await durable(runner)
            assert runner.states is not None
            figures = runner.states.progress.hydration
            assert not figures.is_whole
            assert figures.bytes == 0 < figures.blocks
            held.released.set()
            await until(lambda: figures.is_whole)
            assert figures.bytes == figures.total_bytes
        await finish(store, sink)

    asyncio.run(run())
    check(sink)


def test_a_job_that_is_killed_before_its_state_is_here_goes_on_from_what_it_has_done(
    held: Held,
) -> None:
    store, sink = restored()

    async def run() -> None:
        for limit in range(BEFORE + 500, BEFORE + AFTER, 500):
            async with started(store, sink, Fed(limit)) as runner:
                await until(lambda: read(runner) >= 500)
                if limit % 1000:
                    await durable(runner)
        held.released.set()
        await finish(store, sink)

    asyncio.run(run())
    check(sink)


@pytest.mark.parametrize("parallelism", [2, 3])
def test_a_job_in_another_parallelism_begins_before_its_state_is_here(
    held: Held, parallelism: int
) -> None:
    store, sink = restored()

    async def run() -> None:
        async with started(store, sink, Fed(BEFORE + 1000), parallelism=parallelism) as runner:
            await until(lambda: read(runner) == 1000)
            await durable(runner)
        # And back, from what several have inherited: one of them goes on, others are copied.
        async with started(store, sink, Fed(BEFORE + 2000), parallelism=1) as runner:
            await until(lambda: read(runner) == 1000)
            await durable(runner)
        held.released.set()
        await finish(store, sink, parallelism=parallelism)

    asyncio.run(run())
    check(sink)


def test_a_native_savepoint_waits_for_no_file_and_a_canonical_one_for_all(held: Held) -> None:
    store, sink = restored()

    async def run() -> None:
        async with started(store, sink, Fed(BEFORE + 1000)) as runner:
            await until(lambda: read(runner) == 1000)
            await runner.savepoint("native")
            canonical = asyncio.ensure_future(runner.savepoint("canonical", "canonical"))
            await durable(runner)
            assert not canonical.done()
            held.released.set()
            await canonical
        await finish(store, sink)

    asyncio.run(run())
    check(sink)


def test_no_file_is_uploaded_and_none_is_deleted_before_all_are_here(held: Held) -> None:
    store, sink = restored()
    before = {name for name in contents(store) if name.startswith(TABLES)}
    often = MaterializeConfig(interval=0.05)

    async def tables() -> set[str]:
        return {info.name async for info in store.list(TABLES)}

    async def run() -> None:
        async with started(store, sink, Fed(BEFORE + 1000), materialize=often, retain=1) as runner:
            await until(lambda: read(runner) == 1000)
            await durable(runner)
            await durable(runner)
            assert await tables() == before
            held.released.set()
            assert runner.states is not None
            (ledger,) = [s for s in runner.states.subtasks.values() if s.backend.hydration]
            await until(lambda: ledger.snapshots.metrics.completed > 0)
            assert await tables() != before
        await finish(store, sink)

    asyncio.run(run())
    check(sink)


DAMAGES = more_in_depth(4, 40)


@pytest.mark.parametrize("seed", [*range(DAMAGES), "footer"])
def test_damage_is_never_a_wrong_result(seed: int | str, held: Held, logged: Logged) -> None:
    objects, sink = early_starts.state()
    rng = Random(seed)
    name = rng.choice(sorted(name for name in objects if name.startswith(TABLES)))
    size = len(objects[name])
    position = rng.randrange(size - FOOTER_BYTES if seed == "footer" else 0, size)
    damage = flipped_at(position, 1 << rng.randrange(8))
    store = with_objects(MemoryStore(), {**objects, name: damage(objects[name])})
    output = copy.deepcopy(sink)

    async def release_for_reads() -> None:
        # RocksDB tells of a bad footer in other words than of a hole: all files are waited for.
        while not logged("table_fetched_whole"):
            await asyncio.sleep(0.01)
        held.released.set()

    async def run() -> None:
        releasing = asyncio.ensure_future(release_for_reads())
        async with started(store, output, Fed(BEFORE + AFTER - 1)) as runner:
            await until(lambda: read(runner) == AFTER - 1)
        releasing.cancel()
        held.released.set()
        await finish(store, output)

    with pytest.raises(CorruptObjectError, match=name):
        asyncio.run(run())
    assert set(output.records) <= early_starts.expected()


def check_while_held(
    held: Held, store: ObjectStore, sink: Outside, meanwhile: Callable[[JobRunner], Awaitable[None]]
) -> None:
    """A job handles 1,000 records before a whole file arrives, whatever happens meanwhile, and the
    rest in a later run.
    """

    async def run() -> None:
        async with started(store, sink, Fed(BEFORE + 1000)) as runner:
            await meanwhile(runner)
            await until(lambda: read(runner) == 1000)
            await durable(runner)
        held.released.set()
        await finish(store, sink)

    asyncio.run(run())
    check(sink)


def test_records_wait_for_a_store_that_is_away(held: Held, logged: Logged) -> None:
    objects, sink = restored()
    store = SteerableStore(objects)

    async def go_away(runner: JobRunner) -> None:
        await until(lambda: read(runner) > 0)
        store.fail(Fault(FaultKind.FAIL, "get", TABLES))
        await until(lambda: bool(logged("tables_wait")))
        store.fail()

    check_while_held(held, store, sink, go_away)


def test_a_start_fails_when_the_store_of_its_tables_is_away(held: Held) -> None:
    objects, sink = restored()
    store = SteerableStore(objects)
    store.fail(Fault(FaultKind.FAIL, "get", TABLES))

    async def run() -> None:
        async with started(store, sink, Fed()):
            raise AssertionError("it must not start")

    with pytest.raises(StoreUnreachableError, match=TABLES):
        asyncio.run(run())


def test_what_records_wait_for_is_named_while_they_wait(
    held: Held, logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.state.recovery.parts._LONG_WAIT_S", 0.05)
    objects, sink = restored()
    store = SteerableStore(objects)

    async def be_silent(runner: JobRunner) -> None:
        await until(lambda: read(runner) > 0)
        store.fail(Fault(FaultKind.STALL, "get", TABLES))
        await until(lambda: bool(logged("read_waited")))
        assert read(runner) < 1000
        assert logged("read_waited")[0]["object"].startswith(TABLES)
        store.fail()
        store.release()

    check_while_held(held, store, sink, be_silent)


def test_records_do_not_wait_for_requests_that_are_slow_three_times_in_a_row(held: Held) -> None:
    objects, sink = restored()
    store = SlowParts(objects)

    async def look(runner: JobRunner) -> None:
        await until(lambda: read(runner) == 1000)
        assert store.asked == 4

    check_while_held(held, store, sink, look)


def test_writers_wait_when_many_files_cannot_be_compacted_and_checkpoints_do_not(
    held: Held, logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.table.hydrating.LEVEL0_GROWTH", 1)
    store, sink = restored()

    def level0(runner: JobRunner) -> int:
        (table,) = tables(runner)
        return table._level0()

    async def run() -> None:
        async with started(store, sink, Fed(BEFORE + AFTER - 1)) as runner:
            before = level0(runner)
            await until(lambda: bool(logged("table_stalled")))
            await durable(runner)
            restore = status_of(runner).restore
            assert restore is not None and restore.hydration is not None
            assert restore.hydration.stalled == 1
            handled = read(runner)
            assert handled < AFTER - 1
            await durable(runner)
            assert read(runner) == handled
            # One buffer makes no more than one or two files.
            assert level0(runner) <= before + 3 + 2
            held.released.set()
            await until(lambda: read(runner) == AFTER - 1)
            restore = status_of(runner).restore
            assert restore is not None and restore.hydration is not None
            assert restore.hydration.stalled == 0
        await finish(store, sink)

    asyncio.run(run())
    check(sink)


def tables(runner: JobRunner) -> list[HydratingTable]:
    """Those that were served before they were whole."""
    assert runner.states is not None
    backends = [subtask.backend for subtask in runner.states.subtasks.values()]
    return [b.table for b in backends if isinstance(b.table, HydratingTable)]


@pytest.mark.parametrize("handled", [0, 100])
def test_holes_in_words_that_nobody_knows_make_records_wait_until_the_state_is_here(
    held: Held, logged: Logged, monkeypatch: pytest.MonkeyPatch, handled: int
) -> None:
    store, sink = restored()
    source = Fed(BEFORE + handled)

    # Else a few requests fetch all of so small a table.
    monkeypatch.setattr("tidelog.state.recovery.parts._GAP", 0)

    def forget_the_words() -> None:
        monkeypatch.setattr("tidelog.table.holes._BLOCK", re.compile("(?!)"))
        monkeypatch.setattr("tidelog.table.holes._FOOTER", re.compile("(?!)"))

    async def run() -> None:
        if not handled:
            forget_the_words()
        async with started(store, sink, source) as runner:
            await until(lambda: read(runner) == handled)
            forget_the_words()
            source.limit = BEFORE + 1000
            await until(lambda: bool(logged("table_fetched_whole")))
            assert read(runner) <= handled + 100
            held.released.set()
            await until(lambda: read(runner) == 1000)
            await durable(runner)
        await finish(store, sink)

    asyncio.run(run())
    check(sink)


def test_a_disk_that_is_too_small_is_reported_before_anything_is_fetched(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, sink = restored()
    full = SimpleNamespace(total=1 << 30, used=1 << 30, free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)

    async def run() -> None:
        async with started(store, sink, Fed()):
            raise AssertionError("it must not start")

    with pytest.raises(StoreFullError, match="1000 bytes free"):
        asyncio.run(run())
    assert held.asked == 0


def test_a_small_state_is_loaded_whole_first() -> None:
    store, sink = restored()

    async def run() -> None:
        runner = await finish(store, sink, restore=RestoreConfig(begin="at-once"))
        assert runner.states is not None
        assert runner.states.progress.hydration.started is None
        assert runner.states.progress.hydration.refusals == {}

    asyncio.run(run())
    check(sink)


def test_a_start_that_must_upload_all_of_its_state_waits_for_it(logged: Logged) -> None:
    store, sink = restored()

    async def run() -> None:
        runner = await finish(store, sink, changelog=False)
        assert runner.states is not None
        (reason,) = runner.states.progress.hydration.refusals
        assert [record["reason"] for record in logged("tables_loaded_first")] == [reason]

    asyncio.run(run())
    check(sink)


def test_an_encrypted_state_begins_early_as_any_other(held: Held, tmp_path: Path) -> None:
    objects, sink = early_starts.state()
    key = tmp_path / "key"
    key.write_bytes(base64.b64encode(bytes(range(32))))
    key.chmod(0o600)
    store, output = encrypted(tmp_path, key), copy.deepcopy(sink)

    async def run() -> None:
        for name, data in objects.items():
            await store.put(name, data)
        async with started(store, output, Fed(BEFORE + 1000)) as runner:
            await until(lambda: read(runner) == 1000)
            await durable(runner)
        held.released.set()
        await finish(store, output)

    asyncio.run(run())
    check(output)


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_files_that_arrive_after_the_start_are_kept_on_local_disk_as_others_are(
    is_encrypted: bool, tmp_path: Path
) -> None:
    objects, sink = early_starts.state()
    tables = {name for name in objects if name.startswith(TABLES)}
    key = tmp_path / "key"
    key.write_bytes(base64.b64encode(bytes(range(32))))
    key.chmod(0o600)
    store = encrypted(tmp_path, key) if is_encrypted else MemoryStore()
    output, kept = copy.deepcopy(sink), tmp_path / "kept"

    async def run() -> None:
        for name, data in objects.items():
            await store.put(name, data)
        for limit in (BEFORE + 1000, BEFORE + 2000):
            counted = SteerableStore(store)
            async with started(counted, output, Fed(limit), local_recovery=kept) as runner:
                await until(lambda: read(runner) == 1000)
                assert runner.states is not None
                figures = runner.states.progress.hydration
                await until(partial(attrgetter("is_whole"), figures))
                await durable(runner)
                copies = runner.states.start.copies
                assert copies is not None
                assert copies.copies >= tables
            fetched = {name for operation, name in counted.calls if operation == "get"}
            assert fetched & tables == (tables if limit == BEFORE + 1000 else set())
        await finish(store, output)

    asyncio.run(run())
    check(output)


def encrypted(directory: Path, key: Path) -> ObjectStore:
    return open_store(f"memory://{directory.name}", encryption_key=str(key))
