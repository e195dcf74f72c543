"""What a job logs when something fails, waits or is given up while it goes on."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.pipelines import Outside, config, effects, run, word_count, words
from tidelog import JobConfig, JobRunner, TidelogError, UploadConfig
from tidelog.checkpoint.local_first import LocalFirstStore
from tidelog.errors import AccessDeniedError
from tidelog.ids import Generation
from tidelog.runtime.supervise import run_until_done
from tidelog.storage import object_names
from tidelog.storage.errors import access_denied, object_not_found
from tidelog.storage.faulty import Fault, FaultKind, FaultyStore
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectStore
from tidelog.storage.retry import RetryingStore
from tidelog.storage.retry_policy import RetryPolicy

SOURCE = words(2, 30)
Logged = Callable[[str], list[dict[str, Any]]]


def run_with(
    *faults: Fault, settings: JobConfig | None = None, store: ObjectStore | None = None
) -> None:
    """Run a job to its end on a store with faults; how it ends is not looked at."""
    struck = FaultyStore(store or MemoryStore(), faults, effects().clock, Random(5))
    with suppress(TidelogError):
        run(word_count(SOURCE, Outside()), struck, settings or config())


def test_a_start_and_its_checkpoints_are_logged(
    logged: Logged,
) -> None:
    run(word_count(SOURCE, Outside()), MemoryStore(), config())
    [started] = logged("generation_started")
    [restored] = logged("job_restored")
    assert started == {"job": "word-count", "generation": 0}
    assert restored == {"job": "word-count", "generation": 0, "slot": None}
    slots = [fields["slot"] for fields in logged("checkpoint_completed")]
    assert slots and slots == sorted(slots)


def test_a_segment_that_cannot_be_uploaded_is_logged_and_so_is_its_checkpoint(
    logged: Logged,
) -> None:
    run_with(Fault(FaultKind.FAIL, "put", object_names.SEGMENTS, nth=1))
    [failed] = logged("segment_not_uploaded")
    assert failed["segment"].startswith(object_names.SEGMENTS) and failed["bytes"] > 0
    assert "injected failure" in str(failed["error"])


def test_a_materialization_that_fails_is_logged(logged: Logged) -> None:
    run_with(Fault(FaultKind.FAIL, "put", object_names.MATERIALIZATIONS, nth=1))
    [failed] = logged("materialization_failed")
    assert failed["failures"] == 1 and "injected failure" in str(failed["error"])


def test_deletions_that_fail_are_logged_once_per_attempt(
    logged: Logged,
) -> None:
    run_with(Fault(FaultKind.FAIL, "delete", object_names.SEGMENTS, error=access_denied))
    failed = logged("objects_not_deleted")
    assert failed and all(fields["objects"] >= 1 for fields in failed)
    assert len(failed) <= len(logged("checkpoint_completed")) + 1


def test_a_slot_that_cannot_be_deleted_is_logged(logged: Logged) -> None:
    run_with(Fault(FaultKind.FAIL, "delete", object_names.CHECKPOINTS, nth=1))
    assert len(logged("slot_not_deleted")) == 1


def test_a_checkpoint_without_a_manifest_is_logged_as_aborted(
    logged: Logged,
) -> None:
    run_with(Fault(FaultKind.FAIL, "create", object_names.CHECKPOINTS, nth=3))
    [aborted] = logged("checkpoint_aborted")
    assert "injected failure" in aborted["reason"]


def test_a_look_at_the_store_that_fails_is_logged(logged: Logged) -> None:
    """After a checkpoint that failed the job looks for a newer start, and the store is away."""
    refused = Fault(FaultKind.FAIL, "create", object_names.CHECKPOINTS, nth=3)
    for nth in range(3, 8):  # the start looks at the slots a few times, too
        away = Fault(FaultKind.FAIL, "list", object_names.CHECKPOINTS, nth=nth)
        run_with(refused, away)
    assert logged("newer_start_unknown")


def test_a_fenced_job_is_logged(logged: Logged) -> None:
    async def scenario() -> None:
        store, outside = MemoryStore(), effects()
        older = JobRunner(word_count(SOURCE, Outside()), store, config(), outside)
        newer = JobRunner(word_count(SOURCE, Outside()), store, config(), outside)
        fenced = asyncio.ensure_future(older.run())
        await outside.clock.sleep(2.5)
        await asyncio.gather(fenced, newer.run(), return_exceptions=True)

    asyncio.run(scenario())
    assert logged("generation_fenced")[0]["generation"] == 0


def test_what_cannot_be_read_at_a_start_is_logged(logged: Logged) -> None:
    store = MemoryStore()
    run(word_count(SOURCE, Outside()), store, config())
    run_with(
        Fault(FaultKind.FAIL, "get", object_names.MATERIALIZATIONS, nth=1, error=object_not_found),
        store=store,
    )
    assert "materializations/" in logged("descriptor_unreadable")[0]["object"]


def test_requests_that_are_tried_again_are_logged(logged: Logged) -> None:
    async def scenario() -> None:
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

    asyncio.run(scenario())
    first, *others = logged("request_retried")
    assert (first["object"], first["attempt"]) == ("lost", 2) and first["pause_s"] > 0
    assert {fields["object"] for fields in others} == {"away"}
    [hedged] = logged("request_hedged")
    assert (hedged["object"], hedged["after_s"]) == ("slow", pytest.approx(2.0, abs=0.01))
    [given_up] = logged("request_given_up")
    assert given_up["object"] == "away" and given_up["attempts"] == len(others) + 1


def test_writers_that_wait_for_uploads_are_logged_now_and_then(
    logged: Logged,
) -> None:
    slow = Fault(FaultKind.DELAY, "put", object_names.SEGMENTS, seconds=1.0)
    upload = UploadConfig(limit_bytes=200, segment_bytes=100, inline_bytes=0)
    run_with(slow, settings=config(upload=upload))
    waits = logged("writers_wait")
    assert waits and all(fields["held_bytes"] > fields["limit_bytes"] == 200 for fields in waits)


def test_local_copies_that_do_not_help_are_logged(tmp_path: Path, logged: Logged) -> None:
    async def scenario() -> None:
        store = await LocalFirstStore.open(MemoryStore(), tmp_path, 200, effects())
        name = object_names.segment(Generation(0), "a", 1)
        await store.put(name, b"x" * 100)
        [copy] = tmp_path.rglob("*.seg")
        copy.write_bytes(b"damaged")
        assert await store.get(name) == b"x" * 100
        for number in range(3):
            other = object_names.segment(Generation(0), "a", 2 + number)
            await store.put(other, b"x" * 150)

    asyncio.run(scenario())
    [opened] = logged("local_copies_opened")
    assert (opened["objects"], opened["bytes"]) == (0, 0)
    [damaged] = logged("local_copy_damaged")
    assert damaged["object"].endswith(".seg") and "seal" in str(damaged["error"])
    assert logged("local_copies_full") == [{"limit_bytes": 200}], "once, not for every object"


def test_a_failure_beside_the_one_that_ends_a_job_is_logged(
    logged: Logged,
) -> None:
    async def fails(what: str) -> None:
        raise AccessDeniedError(what, action="none")

    with pytest.raises(AccessDeniedError, match="first"):
        asyncio.run(run_until_done([fails("first"), fails("second")], []))
    [other] = logged("further_failure")
    assert "second" in str(other["error"])
