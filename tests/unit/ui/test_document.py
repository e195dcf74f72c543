"""The document says of a store what its objects say.

The page reads a store at little cost, and what is damaged again and again.

The page follows a store and its job, and says what it cannot know.
"""

import asyncio
import re
from typing import Any

import pytest

from tests.support import pipelines
from tests.support.clock import VirtualClock
from tests.support.damage import (
    Damage,
    checkpoint_in,
    damaged,
    flipped,
    missing,
    needs,
    of_a_newer_release,
    truncated,
)
from tests.support.faults import Fault, FaultKind, FaultyStore
from tests.support.jobs import contents, every_kind, filled, run, store_of
from tests.support.pipelines import Outside, words
from tests.support.watching import MadeUpJob, document_of, done, watcher
from tidelog import JobRunner, Savepoint
from tidelog.catalog.audit import advised, audit
from tidelog.checkpoint.manifest import encode_entry
from tidelog.checkpoint.sizes import checkpoint_sizes
from tidelog.errors import AccessDeniedError, ConfigError, ControlError, TidelogError
from tidelog.ids import Slot
from tidelog.state.recovery.progress import RestoreProgress
from tidelog.storage.memory import MemoryStore
from tidelog.storage.object_names import checkpoint
from tidelog.ui.document import Document
from tidelog.ui.following import Follower
from tidelog.ui.stored import StoreReader
from tidelog.ui.watch import Watcher


@pytest.fixture(scope="module")
def document() -> Document:
    return document_of(filled())


def test_it_names_the_job_and_every_slot_that_counts_newest_first(document: Document) -> None:
    assert (document.job, document.generation, document.phase) == ("every-kind", 4, "finished")
    assert document.live is None and document.problems == ()
    assert document.notices == ()  # A job that has finished is not missed.
    kinds = [
        (slot.checkpoint, slot.kind, slot.final, slot.restorable) for slot in document.retained
    ]
    assert kinds == [
        (9, "checkpoint", True, True),
        (8, "checkpoint", False, True),
        (7, "checkpoint", False, True),
        (4, "start", None, None),
    ]


def test_a_checkpoint_opens_to_its_operators_and_subtasks(document: Document) -> None:
    entry = checkpoint_in(filled(), 8)
    [shown] = [slot for slot in document.retained if slot.checkpoint == 8]
    assert [each.id for each in shown.operators] == [each.id for each in entry.operators]
    for part, operator in zip(shown.operators, entry.operators, strict=True):
        assert [state.name for state in part.states] == [state.name for state in operator.states]
        for row, state in zip(part.subtasks, operator.subtasks, strict=True):
            ref = state.materialization
            assert (row.seqno, row.materialized_upto) == (state.seqno, state.upto)
            assert row.replay_changes == state.seqno - state.upto
            assert row.materialized_bytes == (ref.table_bytes if ref is not None else 0)
            assert row.log_bytes == sum(piece.length for piece in state.log)
            assert row.descriptor == (ref.descriptor if ref is not None else None)


def test_a_restore_reads_what_the_page_says() -> None:
    store = MemoryStore()
    settings = pipelines.config(table="rocksdb")
    job = pipelines.word_count(words(length=40), Outside())

    async def until_checkpoints(runner: JobRunner) -> None:
        while pipelines.completed(runner) < 5:
            await asyncio.sleep(0)

    pipelines.acted_on(job, store, until_checkpoints, at=0, settings=settings, crash=True)
    restore = document_of(contents(store)).restore
    assert restore.fetch.changes > 0 and restore.possible
    again = JobRunner(job, store, settings, pipelines.effects())
    asyncio.run(again.run())
    progress: RestoreProgress = again.states.progress
    fetch = restore.fetch
    assert fetch.changes == progress.total_changes
    read = fetch.files.bytes + fetch.segments.bytes
    manifests = fetch.manifests.bytes + fetch.described.bytes
    assert read <= progress.total_bytes <= read + manifests
    assert restore.seconds > restore.replay_s > 0


def test_the_bill_counts_what_is_stored(document: Document) -> None:
    bill = document.bill
    assert bill.requests is None
    stored = {kind.kind: (kind.objects, kind.bytes) for kind in bill.stored}
    for kind, prefix in (("log segments", "segments/"), ("table files", "tables/")):
        sizes = [len(data) for name, data in filled().items() if name.startswith(prefix)]
        assert stored[kind] == (len(sizes), sum(sizes)) and sizes
    [s3] = [line for line in bill.lines if line.provider == "aws-s3-standard"]
    slots = sum(slot.manifest_bytes for slot in document.retained)
    data = [len(d) for name, d in filled().items() if not name.startswith("checkpoints/")]
    gb_months = (sum(data) + slots) / 2**30
    assert s3.storage == pytest.approx(gb_months * 0.023 / 730 * 24)
    assert (s3.total, s3.requests, s3.here) == (None, None, False)


@pytest.mark.parametrize("damage", [truncated, flipped, of_a_newer_release])
@pytest.mark.parametrize("slot", [7, 9])
def test_a_damaged_slot_has_its_place_and_its_action(slot: int, damage: Damage) -> None:
    name = checkpoint(Slot(slot))
    document = document_of(damaged(filled(), name, damage))
    [shown] = [each for each in document.retained if each.checkpoint == slot]
    assert (shown.kind, shown.restorable, shown.operators) == ("unreadable", False, None)
    assert name in shown.problem
    [problem] = document.problems
    assert (problem.where, problem.unusable) == (name, (slot,))
    assert "restore checkpoint" in problem.action or "release that wrote it" in problem.action
    assert document.restore.checkpoint == (9 if slot == 7 else 8)


ALL_OF_8 = sorted(needs(filled(), 8))
ONLY_8 = sorted(needs(filled(), 8) - needs(filled(), 7))


@pytest.mark.parametrize(
    "damages",
    [
        {checkpoint(Slot(9)): flipped, ONLY_8[0]: missing},
        {checkpoint(Slot(9)): flipped, checkpoint(Slot(8)): truncated},
        {checkpoint(Slot(9)): of_a_newer_release, ONLY_8[-1]: truncated},
        dict.fromkeys(ALL_OF_8, missing),
        {checkpoint(Slot(9)): truncated, **dict.fromkeys(ALL_OF_8, missing)},
    ],
)
def test_page_and_inspect_are_of_one_mind_about_what_can_be_restored(
    damages: dict[str, Damage],
) -> None:
    objects = dict(filled())
    for name, damage in damages.items():
        objects = damaged(objects, name, damage)
    document = document_of(objects)
    report = asyncio.run(audit(store_of(objects)))
    restorable = {each.checkpoint: each.restorable for each in document.retained}
    assert restorable == {each.checkpoint: each.restorable for each in report.checkpoints}
    advice = {
        (p.where, p.action) for p in advised(report.problems, report.checkpoints, running=False)
    }
    assert {(problem.where, problem.action) for problem in document.problems} == advice
    named = re.findall(r"restore checkpoint (\d+)", " ".join(action or "" for _, action in advice))
    assert set(map(int, named)) <= {report.newest_restorable}


async def test_a_checkpoint_after_the_last_list_of_objects_is_lost_with_the_one_it_needs() -> None:
    shared = sorted(needs(OBJECTS, 8) & needs(OBJECTS, 9))[0]
    newest = checkpoint(Slot(9))
    objects = damaged(damaged(OBJECTS, shared, missing), newest, missing)
    store, clock = store_of(objects), VirtualClock(auto=False)
    watching = watcher(store, clock=clock)
    await watching.document()
    await store.put(newest, OBJECTS[newest])
    clock.spend(31)  # the slots are read again, the objects are not listed yet
    document = await watching.document()
    assert [each.restorable for each in document.retained if each.checkpoint == 9] == [False]
    assert not any("restore checkpoint 9" in problem.action for problem in document.problems)


def test_a_savepoint_of_rows_is_no_part_of_the_log() -> None:
    entry = checkpoint_in(filled(), 8)
    fields = {name: getattr(entry, name) for name in entry.__struct_fields__}
    savepoint = Savepoint(**fields, name="before", savepoint_format="canonical")
    name = checkpoint(Slot(8))
    document = document_of({**filled(), name: encode_entry(savepoint)})
    points = {point["checkpoint"]: point for point in document.checkpoints}
    assert [points[slot]["canonical"] for slot in (7, 8, 9)] == [False, True, False]
    assert points[8]["savepoint"] == "before"
    # What the next checkpoint adds is counted from the one before the savepoint.
    sizes = checkpoint_sizes(checkpoint_in(filled(), 9), checkpoint_in(filled(), 7), lambda _: {})
    assert points[9]["sizes"]["log_incremental_bytes"] == sizes.log_incremental_bytes


OBJECTS = filled()
STATUS: dict[str, Any] = {
    "job": "every-kind",
    "phase": "running",
    "at_s": 1.0,
    "generation": 4,
    "operators": [{"id": "process", "parallelism": 2, "records_in": 10}],
    "store": {"bytes_written": 2**30, "bytes_read": 0},
}
ATTEMPTS = {"put": 40, "create": 20, "list": 10, "get": 7, "head": 3, "delete": 5}
STATUS["store"] |= {operation: {"attempts": number} for operation, number in ATTEMPTS.items()}


def completed(slot: int, **changes: Any) -> dict[str, Any]:
    """A checkpoint as a job tells it."""
    sizes = ("log_full", "log_incremental", "materialized_full", "materialized_incremental")
    return {
        "checkpoint": slot,
        "attempt": slot,
        "generation": 4,
        "created_ms": 1_700_000_000_000 + slot,
        "seconds": 0.5,
        "phases": {"start_delay_s": 0.1, "alignment_s": 0.2, "durable_s": 0.1, "manifest_s": 0.1},
        "manifest_bytes": 100,
        "sizes": {f"{name}_bytes": slot for name in sizes},
        "unaligned": False,
        "savepoint": None,
        "new_tables": [{"operator": "process", "subtask": 1, "table_bytes": 9, "upto": slot}],
        **changes,
    }


async def test_a_running_job_is_live_and_its_checkpoints_are_on_the_charts() -> None:
    store = store_of(OBJECTS)
    job = MadeUpJob(done(STATUS, (completed(5), completed(6), completed(7))))
    watching = watcher(store, job)
    await watching.look_at_job()
    document = await watching.document()
    assert (document.phase, document.generation, document.notices) == ("running", 4, ())
    assert document.live.pid == 7
    assert document.live.status["operators"][0]["records_in"] == 10
    told = {point["checkpoint"]: point for point in document.checkpoints if "seconds" in point}
    assert list(told) == [5, 6, 7] and told[5]["stored"] is False
    assert {event["upto"] for event in document.materialized} >= {5, 6, 7}


async def test_the_bill_counts_requests_of_a_job_that_runs_for_a_minute() -> None:
    store = store_of(OBJECTS)
    clock = VirtualClock(auto=False)
    job = MadeUpJob(done(STATUS))
    watching = watcher(store, job, clock)
    await watching.look_at_job()
    document = await watching.document()
    started = document.started_ms
    clock.spend((started - clock.now_ms()) / 1000 + 59)
    early = (await watching.document()).bill
    assert early.requests is None
    assert {line.total for line in early.lines} == {None}
    clock.spend(41)
    bill = (await watching.document()).bill
    a_day = 86_400 / bill.requests.over_s
    assert bill.requests.over_s == pytest.approx(100, abs=0.1)
    assert bill.requests.put == pytest.approx(60 * a_day)
    assert bill.requests.get == pytest.approx(10 * a_day)
    [s3] = [line for line in bill.lines if line.provider == "aws-s3-standard"]
    # PUT and LIST cost the same there, a GET less, a DELETE nothing.
    assert s3.requests == pytest.approx((70 * 0.005 + 10 * 0.0004) / 1000 * a_day)
    assert s3.total == pytest.approx(s3.storage + s3.requests)
    [express] = [line for line in bill.lines if line.provider == "aws-s3-express"]
    assert express.transfer == pytest.approx(0.0032 * a_day)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ControlError("the job", found="none", action="x"), "No job answers on this machine"),
        (ControlError("the job", found="that it ended", action="x"), "found that it ended"),
        (AccessDeniedError("the job", found="that of root", action="x"), "found that of root"),
        (
            ConfigError("request", found="Invalid enum value 'observe'", action="use its release"),
            "does not show its figures",
        ),
        (TimeoutError(), "has not answered for 5 s"),
    ],
)
async def test_a_job_that_cannot_be_asked_leaves_the_store_and_a_reason(
    error: TidelogError | TimeoutError, said: str
) -> None:
    objects = {n: data for n, data in OBJECTS.items() if n != checkpoint(Slot(9))}
    store = store_of(objects)
    job = MadeUpJob(done(STATUS))
    watching = watcher(store, job)
    await watching.look_at_job()
    assert (await watching.document()).live is not None
    job.answer = error
    await watching.look_at_job()
    document = await watching.document()
    assert document.live is None and document.retained
    [notice] = document.notices
    assert said in notice


async def test_a_store_is_read_again_though_the_clock_was_set_back_by_an_hour() -> None:
    clock = VirtualClock(auto=False)
    store = FaultyStore(store_of(OBJECTS), (), clock)
    watching = watcher(store, clock=clock)
    await watching.document()
    assert store.calls
    clock.spend(-3600)
    store.calls.clear()
    await watching.document()
    assert store.calls


def test_a_page_shows_nothing_of_a_store_that_was_removed_and_begun_anew() -> None:
    anew = MemoryStore()
    run(anew, every_kind(), seed=2)
    store, clock = store_of(OBJECTS), VirtualClock(auto=False)
    job = MadeUpJob(done(STATUS, (completed(7), completed(8))))
    reader = StoreReader(store, clock)
    watching = Follower(store, clock, Watcher(reader, clock, ask=job))
    page_opened_now = watcher(anew, job, clock)

    async def look_at_both() -> None:
        await watching.look_at_job()
        await watching.document()
        reader.store = anew
        job.answer = done({**STATUS, "generation": 0}, (completed(2),))
        clock.spend(10)
        await watching.document()
        for each in (watching, page_opened_now):
            await each.look_at_job()
        seen, expected = await watching.document(), await page_opened_now.document()
        assert seen.checkpoints == expected.checkpoints
        assert seen.retained == expected.retained and seen.problems == ()
        assert seen.materialized == expected.materialized
        assert seen.started_ms == expected.started_ms
        assert seen.live == expected.live

    asyncio.run(look_at_both())


async def test_a_job_is_shown_while_its_store_does_not_answer() -> None:
    clock = VirtualClock(auto=False)
    store = FaultyStore(store_of(OBJECTS), [Fault(FaultKind.STALL, nth=1)], clock)
    following = watcher(store, MadeUpJob(done(STATUS, (completed(5),))), clock)
    await following.look_at_job()
    await following.document(patience_s=0)
    clock.spend(43)
    document = await following.document(patience_s=0)
    assert (document.job, document.phase, document.retained) == ("every-kind", "running", ())
    assert [point["checkpoint"] for point in document.checkpoints] == [5]
    [problem] = document.problems
    assert problem.where == f"store {store.url}" and "UTC, for 43 s" in problem.found
    store.release()
    document = await following.document()
    assert document.problems == () and document.retained


async def test_a_store_that_refuses_is_named_with_its_reason_beside_the_job() -> None:
    clock = VirtualClock(auto=False)

    def denied(what: str, found: str) -> AccessDeniedError:
        return AccessDeniedError(what, found=f"{found}: 403", action="check the credentials")

    store = FaultyStore(store_of(OBJECTS), [Fault(FaultKind.FAIL, error=denied)], clock)
    following = watcher(store, MadeUpJob(done(STATUS)), clock)
    await following.look_at_job()
    document = await following.document()
    assert document.phase == "running" and isinstance(following.failure, AccessDeniedError)
    [problem] = document.problems
    assert "403" in problem.found and problem.action == "check the credentials"
