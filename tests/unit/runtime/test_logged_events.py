"""What a job logs when something fails, waits, is given up or done without while it goes on."""

import asyncio
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.faulty_store import Fault, FaultKind, FaultyStore
from tests.support.pipelines import Outside, acted_on, config, effects, run, word_count, words
from tests.support.pressure import checkpoints
from tidelog import JobConfig, JobRunner, SavepointFailedError, TidelogError, UploadConfig
from tidelog.changelog.uploader import Uploader
from tidelog.checkpoint.local_first import LocalFirstStore
from tidelog.checkpoint.slots import SlotLog
from tidelog.errors import AccessDeniedError
from tidelog.ids import Generation
from tidelog.runtime.subtasks import resources
from tidelog.runtime.subtasks.incarnation import run_until_done
from tidelog.storage import object_names
from tidelog.storage.errors import access_denied, object_not_found
from tidelog.storage.local_files import TEMP_DIRECTORY, remove_stale_temps
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectStore
from tidelog.storage.retry import RetryingStore
from tidelog.storage.retry_policy import RetryPolicy
from tidelog.table.rocksdb import RocksTableFactory

SOURCE = words(2, 30)
Logged = Callable[[str], list[dict[str, Any]]]


def run_with(
    *faults: Fault, settings: JobConfig | None = None, store: ObjectStore | None = None
) -> None:
    """Run a job to its end on a store with faults; how it ends is not looked at."""
    struck = FaultyStore(store or MemoryStore(), faults, effects().clock, Random(5))
    with suppress(TidelogError):
        run(word_count(SOURCE, Outside()), struck, settings or config())


def test_a_start_and_its_checkpoints_are_logged(logged: Logged) -> None:
    run(word_count(SOURCE, Outside()), MemoryStore(), config())
    [started] = logged("generation_started")
    [restored] = logged("job_restored")
    assert started == {"job": "word-count", "generation": 0}
    assert restored == {"job": "word-count", "generation": 0, "slot": None}
    slots = [fields["slot"] for fields in logged("checkpoint_completed")]
    assert slots and slots == sorted(slots)


@pytest.mark.parametrize(
    ("operation", "prefix", "nth", "event", "field", "says"),
    [
        ("put", object_names.SEGMENTS, 1, "segment_not_uploaded", "error", "injected failure"),
        ("put", object_names.MATERIALIZATIONS, 1, "materialization_failed", "error", "injected"),
        ("delete", object_names.CHECKPOINTS, 1, "slot_not_deleted", "error", "injected failure"),
        ("create", object_names.CHECKPOINTS, 3, "checkpoint_aborted", "reason", "injected"),
    ],
    ids=lambda value: value if str(value).count("_") else "",
)
def test_a_request_that_fails_once_is_logged_once(
    operation: str, prefix: str, nth: int, event: str, field: str, says: str, logged: Logged
) -> None:
    run_with(Fault(FaultKind.FAIL, operation, prefix, nth=nth))
    [failed] = logged(event)
    assert says in str(failed[field])


def test_deletions_that_fail_are_logged_once_per_attempt(logged: Logged) -> None:
    run_with(Fault(FaultKind.FAIL, "delete", object_names.SEGMENTS, error=access_denied))
    failed = logged("objects_not_deleted")
    assert failed and all(fields["objects"] >= 1 for fields in failed)
    assert len(failed) <= len(logged("checkpoint_completed")) + 1


def test_a_look_at_the_store_that_fails_is_logged(logged: Logged) -> None:
    """After a checkpoint that failed the job looks for a newer start, and the store is away."""
    refused = Fault(FaultKind.FAIL, "create", object_names.CHECKPOINTS, nth=3)
    for nth in range(3, 8):  # the start looks at the slots a few times, too
        away = Fault(FaultKind.FAIL, "list", object_names.CHECKPOINTS, nth=nth)
        run_with(refused, away)
    assert logged("newer_start_unknown")


async def test_a_fenced_job_is_logged(logged: Logged) -> None:
    store, outside = MemoryStore(), effects()
    older = JobRunner(word_count(SOURCE, Outside()), store, config(), outside)
    newer = JobRunner(word_count(SOURCE, Outside()), store, config(), outside)
    fenced = asyncio.ensure_future(older.run())
    await outside.clock.sleep(2.5)
    await asyncio.gather(fenced, newer.run(), return_exceptions=True)
    assert logged("generation_fenced")[0]["generation"] == 0


def test_what_cannot_be_read_at_a_start_is_logged(logged: Logged) -> None:
    store = MemoryStore()
    run(word_count(SOURCE, Outside()), store, config())
    run_with(
        Fault(FaultKind.FAIL, "get", object_names.MATERIALIZATIONS, nth=1, error=object_not_found),
        store=store,
    )
    assert "materializations/" in logged("descriptor_unreadable")[0]["object"]


async def test_requests_that_are_tried_again_are_logged(logged: Logged) -> None:
    outside = effects()
    faults = [
        Fault(FaultKind.FAIL, "put", "lost", nth=1),
        Fault(FaultKind.FAIL, "get", "away"),
        Fault(FaultKind.DELAY, "put", "slow", nth=1, seconds=9.0),
    ]
    inner = FaultyStore(MemoryStore(), faults, outside.clock, Random(5))
    policy = RetryPolicy(attempt_timeout=20, hedge_after=2.0, deadline=10)
    store = RetryingStore(inner, policy, outside)
    await store.put("lost", b"data")
    await store.put("slow", b"data")
    with suppress(TidelogError):
        await store.get("away")
    first, *others = logged("request_retried")
    assert (first["object"], first["attempt"]) == ("lost", 2) and first["pause_s"] > 0
    assert {fields["object"] for fields in others} == {"away"}
    [hedged] = logged("request_hedged")
    assert (hedged["object"], hedged["after_s"]) == ("slow", pytest.approx(2.0, abs=0.01))
    [given_up] = logged("request_given_up")
    assert given_up["object"] == "away" and given_up["attempts"] == len(others) + 1


def test_writers_that_wait_for_uploads_are_logged_now_and_then(logged: Logged) -> None:
    slow = Fault(FaultKind.DELAY, "put", object_names.SEGMENTS, seconds=1.0)
    upload = UploadConfig(limit_bytes=200, segment_bytes=100, inline_bytes=0)
    run_with(slow, settings=config(upload=upload))
    waits = logged("writers_wait")
    assert waits and all(fields["held_bytes"] > fields["limit_bytes"] == 200 for fields in waits)


async def test_local_copies_that_do_not_help_are_logged(tmp_path: Path, logged: Logged) -> None:
    store = await LocalFirstStore.open(MemoryStore(), tmp_path, 200, effects())
    name = object_names.segment(Generation(0), "a", 1)
    await store.put(name, b"x" * 100)
    [copy] = tmp_path.rglob("*.seg")
    copy.write_bytes(b"damaged")
    assert await store.get(name) == b"x" * 100
    for number in range(3):
        other = object_names.segment(Generation(0), "a", 2 + number)
        await store.put(other, b"x" * 150)
    [opened] = logged("local_copies_opened")
    assert (opened["objects"], opened["bytes"]) == (0, 0)
    [damaged] = logged("local_copy_damaged")
    assert damaged["object"].endswith(".seg") and "seal" in str(damaged["error"])
    assert logged("local_copies_full") == [{"limit_bytes": 200}], "once, not for every object"


def test_a_failure_beside_the_one_that_ends_a_job_is_logged(logged: Logged) -> None:
    async def fails(what: str) -> None:
        raise AccessDeniedError(what, action="none")

    with pytest.raises(AccessDeniedError, match="first"):
        asyncio.run(run_until_done([fails("first"), fails("second")], []))
    [other] = logged("further_failure")
    assert "second" in str(other["error"])


def test_a_savepoint_that_is_refused_is_logged_with_the_reason(logged: Logged) -> None:
    async def ask(runner: JobRunner) -> None:
        with pytest.raises(SavepointFailedError):
            await asyncio.gather(runner.savepoint("first"), runner.savepoint("second"))

    acted_on(word_count(SOURCE, Outside()), MemoryStore(), ask, at=0)
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


async def test_a_start_whose_slot_another_one_took_is_logged(logged: Logged) -> None:
    slots = SlotLog(store := MemoryStore(), effects())
    create = store.create

    async def later(name: str, data: bytes) -> None:
        store.create = create  # type: ignore[method-assign]
        await SlotLog(store, effects(2)).take_over("job")
        await create(name, data)

    store.create = later  # type: ignore[method-assign]
    await slots.take_over("job")
    [raced] = logged("start_raced")
    assert [fields["generation"] for fields in logged("generation_started")] == [0, 1]
    assert raced == {"slot": 0}


async def test_a_disk_that_refuses_local_copies_is_logged_and_the_store_answers(
    tmp_path: Path, logged: Logged
) -> None:
    store = await LocalFirstStore.open(MemoryStore(), tmp_path, 10_000, effects())
    name = object_names.segment(Generation(0), "a", 1)
    await store.put(name, b"x" * 100)
    [copies] = tmp_path.iterdir()
    shutil.rmtree(copies)
    copies.write_bytes(b"a file where the directory was")
    assert await store.get(name) == b"x" * 100
    await store.put(object_names.segment(Generation(0), "a", 2), b"y")
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

    monkeypatch.setattr(resources.shutil, "rmtree", rmtree)
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
