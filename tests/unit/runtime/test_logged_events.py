"""What a job logs when something fails, waits, is given up or done without while it goes on."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.support.faults import Failure, Fault, FaultKind
from tests.support.pipelines import Outside, config, run, word_count, words
from tests.support.pressure import checkpoints
from tests.unit.runtime.test_job_faults import faulty
from tidelog import JobConfig, TidelogError, UploadConfig
from tidelog.changelog.uploader import Uploader
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore

SOURCE = words(2, 30)
Logged = Callable[[str], list[dict[str, Any]]]


def run_with(fault: Fault, settings: JobConfig | None = None) -> None:
    """Run a job to its end on a store with a fault; how it ends is not looked at."""
    with suppress(TidelogError):
        run(word_count(SOURCE, Outside()), faulty(MemoryStore(), fault), settings)


def test_a_start_and_its_checkpoints_are_logged(logged: Logged) -> None:
    run(word_count(SOURCE, Outside()), MemoryStore(), config())
    [started] = logged("generation_started")
    [restored] = logged("job_restored")
    assert started == {"job": "word-count", "generation": 0}
    assert restored == {"job": "word-count", "generation": 0, "checkpoint": None}
    slots = [fields["checkpoint"] for fields in logged("checkpoint_completed")]
    assert slots and slots == sorted(slots)


@pytest.mark.parametrize(
    ("operation", "prefix", "nth", "event", "field", "says"),
    [
        ("put", object_names.SEGMENTS, 1, "segment_not_uploaded", "error", "injected failure"),
        ("put", object_names.MATERIALIZATIONS, 1, "materialization_failed", "error", "injected"),
        (
            "delete",
            object_names.CHECKPOINTS,
            1,
            "checkpoint_not_deleted",
            "error",
            "injected failure",
        ),
        ("create", object_names.CHECKPOINTS, 3, "checkpoint_aborted", "reason", "injected"),
    ],
    ids=lambda value: value if str(value).count("_") else "",
)
def test_a_request_that_fails_once_is_logged_once(
    operation: str, prefix: str, nth: int, event: str, field: str, says: str, logged: Logged
) -> None:
    run_with(Failure(operation, prefix, nth=nth))
    [failed] = logged(event)
    assert says in str(failed[field])


def test_writers_that_wait_for_uploads_are_logged_now_and_then(logged: Logged) -> None:
    slow = Fault(FaultKind.DELAY, "put", object_names.SEGMENTS, seconds=1.0)
    upload = UploadConfig(limit_bytes=200, segment_bytes=100, inline_bytes=0)
    run_with(slow, config(upload=upload))
    waits = logged("writers_wait")
    assert waits and all(fields["held_bytes"] > fields["limit_bytes"] == 200 for fields in waits)


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
    assert aborted["attempt"] == failed["attempt"]
    assert str(failed["task"]) in aborted["reason"]


def test_a_slot_that_cannot_be_read_is_logged_and_the_start_goes_on(logged: Logged) -> None:
    store, sink = MemoryStore(), Outside()
    run(word_count(SOURCE, sink), store, config(retain=3))
    oldest = min(checkpoint.slot for checkpoint in checkpoints(store))
    store._objects[object_names.checkpoint(oldest)] = b"{}"
    run(word_count(SOURCE, sink), store, config(retain=3))
    assert {fields["checkpoint"] for fields in logged("checkpoint_unreadable")} == {oldest}
