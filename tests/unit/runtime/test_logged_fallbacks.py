"""What a job logs when it does without something, or is refused it, and goes on."""

import asyncio
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tests.support.pipelines import Outside, config, effects, run, word_count, words
from tests.support.pressure import (
    checkpoints,
    copy_of,
    keyed_job,
    numbered,
    outside_as_of,
    overtaken,
    pressed,
    run_pressed,
    slowly,
)
from tidelog import Job, JobRunner, SavepointFailedError, TidelogError
from tidelog.changelog.uploader import Uploader
from tidelog.checkpoint.local_first import LocalFirstStore
from tidelog.checkpoint.slots import SlotLog
from tidelog.ids import Generation
from tidelog.runtime.subtasks import work_dir
from tidelog.storage import object_names
from tidelog.storage.local_files import TEMP_DIRECTORY, remove_stale_temps
from tidelog.storage.memory import MemoryStore
from tidelog.table.rocksdb import RocksTableFactory

SOURCE = words(2, 30)
Logged = Callable[[str], list[dict[str, Any]]]


def test_a_savepoint_that_is_refused_is_logged_with_the_reason(logged: Logged) -> None:
    runner = JobRunner(word_count(SOURCE, Outside()), MemoryStore(), config(), effects())

    async def ask() -> None:
        with pytest.raises(SavepointFailedError):
            await asyncio.gather(runner.savepoint("first"), runner.savepoint("second"))

    async def scenario() -> None:
        asked: list[asyncio.Task[None]] = []
        await runner.run(lambda: asked.append(asyncio.ensure_future(ask())))
        await asyncio.gather(*asked)

    asyncio.run(scenario())
    assert logged("savepoint_refused") == [
        {"savepoint": "second", "reason": "savepoint 'first' is under way"}
    ]


def test_a_snapshot_that_fails_by_a_defect_is_logged_with_its_traceback(
    logged: Logged, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    persist, calls = Uploader.persist, iter(range(1000))

    async def persisted(self: Uploader, *args: Any) -> Any:
        if next(calls) == 3:
            raise ZeroDivisionError("a defect")
        return await persist(self, *args)

    monkeypatch.setattr(Uploader, "persist", persisted)
    sink = Outside()
    run(word_count(SOURCE, sink), MemoryStore(), config())
    [failed] = logged("snapshot_defect")
    assert "a defect" in str(failed["error"]) and "ZeroDivisionError" in caplog.text
    [aborted] = logged("checkpoint_aborted")
    assert (
        aborted["checkpoint"] == failed["checkpoint"] and str(failed["task"]) in aborted["reason"]
    )


def test_a_slot_that_cannot_be_read_is_logged_and_the_start_goes_on(logged: Logged) -> None:
    store, sink = MemoryStore(), Outside()
    run(word_count(SOURCE, sink), store, config(retain=3))
    oldest = min(checkpoint.slot for checkpoint in checkpoints(store))
    store._objects[object_names.checkpoint(oldest)] = b"{}"
    run(word_count(SOURCE, sink), store, config(retain=3))
    assert {fields["slot"] for fields in logged("slot_unreadable")} == {oldest}


def test_a_start_whose_slot_another_one_took_is_logged(logged: Logged) -> None:
    async def scenario() -> None:
        slots = SlotLog(store := MemoryStore(), effects())
        create = store.create

        async def later(name: str, data: bytes) -> None:
            store.create = create  # type: ignore[method-assign]
            await SlotLog(store, effects(2)).take_over("job")
            await create(name, data)

        store.create = later  # type: ignore[method-assign]
        await slots.take_over("job")

    asyncio.run(scenario())
    [raced] = logged("start_raced")
    assert [fields["generation"] for fields in logged("generation_started")] == [0, 1]
    assert raced == {"slot": 0}


def test_a_type_that_no_checkpoint_can_store_in_flight_is_logged_once(logged: Logged) -> None:
    class Order:
        def __init__(self, key: str, number: int) -> None:
            self.key, self.number = key, number

    clock, source, job = VirtualClock(), numbered(), Job("orders")
    orders = job.source(source, parallelism=4).map(lambda r: Order(r[0], r[2]))
    slow = slowly(orders.key_by(lambda o: o.key), clock, 0.2)
    slow.map(lambda o: (o.key, o.number)).sink(Outside())
    with suppress(TidelogError):  # its first checkpoint is one too many for `pressed`
        run_pressed(job, MemoryStore(), pressed("always"), clock)
    kept = logged("barriers_stay_aligned")
    assert kept and all("record_types" in fields["reason"] for fields in kept)


def test_records_in_flight_that_a_restore_drops_are_logged(logged: Logged) -> None:
    source, sink, objects, clock = numbered(), Outside(), MemoryStore(), VirtualClock()
    run_pressed(keyed_job(source, sink, clock), objects, pressed(), clock)
    second, clock = checkpoints(objects)[1], VirtualClock()
    again, dropping = outside_as_of(sink, second), pressed(drop_in_flight=True)
    job = keyed_job(source, again, clock)
    assert logged("in_flight_dropped") == []
    run_pressed(job, copy_of(objects), dropping, clock, restore_slot=second.slot)
    assert logged("in_flight_dropped") == [{"buffers": overtaken(second)}]


def test_a_disk_that_refuses_local_copies_is_logged_and_the_store_answers(
    tmp_path: Path, logged: Logged
) -> None:
    async def scenario() -> None:
        store = await LocalFirstStore.open(MemoryStore(), tmp_path, 10_000, effects())
        name = object_names.segment(Generation(0), "a", 1)
        await store.put(name, b"x" * 100)
        [copies] = tmp_path.iterdir()
        shutil.rmtree(copies)
        copies.write_bytes(b"a file where the directory was")
        assert await store.get(name) == b"x" * 100
        await store.put(object_names.segment(Generation(0), "a", 2), b"y")

    asyncio.run(scenario())
    failed = logged("local_copy_failed")
    assert len(failed) >= 2 and all(f["object"].startswith(object_names.SEGMENTS) for f in failed)


def test_a_work_directory_that_cannot_be_removed_is_logged_and_harms_nothing(
    logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[Path] = []

    def rmtree(path: Path, ignore_errors: bool = False) -> None:
        removed.append(path)
        if not ignore_errors:
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(work_dir.shutil, "rmtree", rmtree)
    run(word_count(SOURCE, Outside()), MemoryStore(), config())
    [left] = logged("file_not_deleted")
    assert removed[-2:] == [left["path"]] * 2, "what can be removed goes, at least"


def test_a_temporary_file_that_cannot_be_removed_is_logged(tmp_path: Path, logged: Logged) -> None:
    stale = tmp_path / TEMP_DIRECTORY / "host-4194305-1"
    (stale / "not empty").mkdir(parents=True)
    remove_stale_temps(tmp_path, "host")
    [left] = logged("file_not_deleted")
    assert left["path"] == stale


def test_a_table_that_is_not_closed_cleanly_is_logged(
    tmp_path: Path, logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = RocksTableFactory().create(tmp_path / "table")
    database = table._db

    class Failing:
        def close(self) -> None:
            database.close()
            raise RuntimeError("IO error: disk")

    monkeypatch.setattr(table, "_db", Failing())
    table.close()
    [failed] = logged("table_not_closed")
    assert "disk" in str(failed["error"])
