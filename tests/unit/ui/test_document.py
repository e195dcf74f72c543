"""The document says of a store what its objects say.

The page reads a store at little cost, and what is damaged again and again.
"""

import asyncio

import pytest

from tests.support import pipelines
from tests.support.clock import VirtualClock
from tests.support.damage import (
    Damage,
    a_descriptor,
    a_table_file,
    checkpoint_in,
    damaged,
    flipped,
    missing,
    of_a_newer_release,
    truncated,
)
from tests.support.jobs import contents, filled, store_of
from tests.support.pipelines import Outside, words
from tests.support.watching import Counting, document_of
from tidelog import CorruptObjectError, JobRunner, ObjectNotFoundError, Savepoint
from tidelog.checkpoint.manifest import encode_entry
from tidelog.checkpoint.sizes import checkpoint_sizes
from tidelog.ids import Slot
from tidelog.state.restore.progress import RestoreProgress
from tidelog.storage.memory import MemoryStore
from tidelog.storage.object_names import checkpoint
from tidelog.ui.document import Document
from tidelog.ui.read import StoreReader


@pytest.fixture(scope="module")
def document() -> Document:
    return document_of(filled())


def test_it_names_the_job_and_every_slot_that_counts_newest_first(document: Document) -> None:
    assert (document.job, document.generation, document.phase) == ("every-kind", 4, "finished")
    assert document.live is None and document.problems == ()
    assert document.notices == ()  # A job that has finished is not missed.
    kinds = [(slot.slot, slot.kind, slot.final, slot.restorable) for slot in document.slots]
    assert kinds == [
        (9, "checkpoint", True, True),
        (8, "checkpoint", False, True),
        (7, "checkpoint", False, True),
        (4, "start", None, None),
    ]


def test_a_checkpoint_opens_to_its_operators_and_subtasks(document: Document) -> None:
    entry = checkpoint_in(filled(), 8)
    [shown] = [slot for slot in document.slots if slot.slot == 8]
    assert shown.operators is not None
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


def test_points_have_the_sizes_of_the_checkpoints(document: Document) -> None:
    entries = [checkpoint_in(filled(), slot) for slot in (7, 8, 9)]
    for point, entry in zip(document.checkpoints, entries, strict=True):
        sizes = checkpoint_sizes(entry, None, lambda _: {})
        assert (point["slot"], point["created_ms"]) == (entry.slot, entry.created_ms)
        assert point["sizes"]["log_full_bytes"] == sizes.log_full_bytes
        assert point["sizes"]["materialized_full_bytes"] == sizes.materialized_full_bytes
        assert point["manifest_bytes"] == len(filled()[checkpoint(entry.slot)])
        assert point["stored"] and point["contents"]["start_delay_s"] >= 0
    new = [point["sizes"].get("log_incremental_bytes") for point in document.checkpoints]
    assert new[0] is None  # Nothing is known before the first.
    for size, point in zip(new[1:], document.checkpoints[1:], strict=True):
        assert size is not None and size <= point["sizes"]["log_full_bytes"]


def test_a_restore_reads_what_the_page_says() -> None:
    store = MemoryStore()
    settings = pipelines.config(table="rocksdb")
    job = pipelines.word_count(words(length=40), Outside())
    interrupted = JobRunner(job, store, settings, pipelines.effects())

    async def until_checkpoints() -> None:
        running = asyncio.ensure_future(interrupted.run())
        while (
            interrupted.incarnation is None or interrupted.incarnation.driver.metrics.completed < 5
        ):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(until_checkpoints())
    restore = document_of(contents(store)).restore
    assert restore is not None and restore.fetch.changes > 0 and restore.possible
    again = JobRunner(job, store, settings, pipelines.effects())
    asyncio.run(again.run())
    assert again.incarnation is not None
    progress: RestoreProgress = again.states.progress
    fetch = restore.fetch
    assert fetch.changes == progress.total_changes
    read = fetch.files.bytes + fetch.segments.bytes
    manifests = fetch.slots.bytes + fetch.described.bytes + fetch.descriptors.bytes
    assert read <= progress.total_bytes <= read + manifests
    assert restore.seconds > restore.replay_s > 0


def test_the_bill_counts_what_is_stored(document: Document) -> None:
    bill = document.bill
    assert bill is not None and bill.requests is None
    stored = {kind.kind: (kind.objects, kind.bytes) for kind in bill.stored}
    for kind, prefix in (("log segments", "segments/"), ("table files", "tables/")):
        sizes = [len(data) for name, data in filled().items() if name.startswith(prefix)]
        assert stored[kind] == (len(sizes), sum(sizes)) and sizes
    [s3] = [line for line in bill.lines if line.provider == "aws-s3-standard"]
    slots = sum(slot.manifest_bytes for slot in document.slots)
    data = [len(d) for name, d in filled().items() if not name.startswith("checkpoints/")]
    gb_months = (sum(data) + slots) / 2**30
    assert s3.storage == pytest.approx(gb_months * 0.023 / 730 * 24)
    assert (s3.total, s3.requests, s3.here) == (s3.storage, None, False)


@pytest.mark.parametrize("damage", [truncated, flipped, of_a_newer_release])
@pytest.mark.parametrize("slot", [7, 9])
def test_a_damaged_slot_has_its_place_and_its_action(slot: int, damage: Damage) -> None:
    name = checkpoint(Slot(slot))
    document = document_of(damaged(filled(), name, damage))
    [shown] = [each for each in document.slots if each.slot == slot]
    assert (shown.kind, shown.restorable, shown.operators) == ("unreadable", False, None)
    assert shown.problem is not None and name in shown.problem
    [problem] = document.problems
    assert (problem.where, problem.unusable) == (name, (slot,))
    assert problem.action is not None
    assert "restore slot" in problem.action or "release that wrote it" in problem.action
    assert document.restore is not None and document.restore.slot == (9 if slot == 7 else 8)


@pytest.mark.parametrize("damage", [truncated, flipped, missing])
def test_a_damaged_descriptor_makes_its_checkpoints_unusable_and_hides_nothing(
    damage: Damage,
) -> None:
    name, _ = a_descriptor(filled(), 9)
    document = document_of(damaged(filled(), name, damage))
    [problem] = [each for each in document.problems if each.where == name]
    assert 9 in problem.unusable and problem.action
    shown = {slot.slot: slot for slot in document.slots}
    assert shown[9].restorable is False and shown[9].operators and shown[9].problem
    assert document.restore is not None and document.restore.possible is False


def test_a_missing_table_file_is_a_problem() -> None:
    name = a_table_file(filled(), 9)
    [problem] = document_of(damaged(filled(), name, missing)).problems
    assert (problem.where, problem.found) == (name, "no such object") and 9 in problem.unusable


def test_a_store_without_a_checkpoint_is_shown() -> None:
    damaged_alone = document_of({checkpoint(Slot(0)): b"{}", checkpoint(Slot(1)): b"x"})
    assert [slot.kind for slot in damaged_alone.slots] == ["unreadable", "unreadable"]
    assert damaged_alone.job is None and len(damaged_alone.problems) >= 2
    start_alone = document_of({checkpoint(Slot(4)): filled()[checkpoint(Slot(4))]})
    assert start_alone.job == "every-kind" and start_alone.started_ms is not None
    for document in (damaged_alone, start_alone):
        assert (document.restore, document.checkpoints) == (None, ())


def test_a_savepoint_of_rows_is_no_part_of_the_log() -> None:
    entry = checkpoint_in(filled(), 8)
    fields = {name: getattr(entry, name) for name in entry.__struct_fields__}
    savepoint = Savepoint(**fields, name="before", savepoint_format="canonical")
    name = checkpoint(Slot(8))
    document = document_of({**filled(), name: encode_entry(savepoint)})
    points = {point["slot"]: point for point in document.checkpoints}
    assert [points[slot]["canonical"] for slot in (7, 8, 9)] == [False, True, False]
    assert points[8]["savepoint"] == "before"
    # What the next checkpoint adds is counted from the one before the savepoint.
    sizes = checkpoint_sizes(checkpoint_in(filled(), 9), checkpoint_in(filled(), 7), lambda _: {})
    assert points[9]["sizes"]["log_incremental_bytes"] == sizes.log_incremental_bytes


OBJECTS = filled()
DESCRIPTORS = {
    state.materialization.descriptor
    for slot in (7, 8, 9)
    for _, state in checkpoint_in(OBJECTS, slot).subtasks()
    if state.materialization is not None
}


async def test_what_was_read_once_is_not_read_again() -> None:
    store = Counting(store_of(OBJECTS))
    reader = StoreReader(store, VirtualClock(auto=False))
    first = await reader.read(objects=True)
    # Four slots, their descriptors; lists of the slots and of each kind of object.
    assert store.taken() == {"get": 4 + len(DESCRIPTORS), "list": 4}
    again = await reader.read(objects=False)
    assert store.taken() == {"list": 1}
    assert again.inventory == first.inventory and again.findings == ()


async def test_a_new_slot_costs_one_read_and_one_that_was_dropped_is_gone() -> None:
    objects = dict(OBJECTS)
    newest = objects.pop(checkpoint(Slot(9)))
    store = Counting(store_of(objects))
    reader = StoreReader(store, VirtualClock(auto=False))
    assert list((await reader.read(objects=True)).slots.checkpoints) == [7, 8]
    store.taken()
    await store.inner.put(checkpoint(Slot(9)), newest)
    await store.inner.delete(checkpoint(Slot(7)))
    assert list((await reader.read(objects=False)).slots.checkpoints) == [8, 9]
    assert store.taken() == {"get": 1, "list": 1}


async def test_a_damaged_slot_and_descriptor_are_kept_as_errors_and_tried_again() -> None:
    name, _ = a_descriptor(OBJECTS, 9)
    objects = damaged(damaged(OBJECTS, checkpoint(Slot(8)), flipped), name, flipped)
    store = Counting(store_of(objects))
    reader = StoreReader(store, VirtualClock(auto=False))
    view = await reader.read(objects=True)
    assert isinstance(view.slots.unreadable[Slot(8)], CorruptObjectError)
    assert isinstance(view.inventory.unreadable[name], CorruptObjectError)
    assert {finding.where for finding in view.findings} == {checkpoint(Slot(8)), name}
    store.taken()
    for damaged_name in (checkpoint(Slot(8)), name):
        await store.inner.put(damaged_name, OBJECTS[damaged_name])
    mended = await reader.read(objects=True)
    assert store.taken() == {"get": 2, "list": 4}
    assert not mended.slots.unreadable and not mended.inventory.unreadable
    assert mended.findings == ()


async def test_a_missing_object_is_found_and_forgotten_with_the_checkpoint_that_needs_it() -> None:
    name, _ = a_descriptor(OBJECTS, 9)
    store = store_of(damaged(OBJECTS, name, missing))
    reader = StoreReader(store, VirtualClock(auto=False))
    [finding] = (await reader.read(objects=True)).findings
    assert finding.where == name
    for slot in finding.unusable:
        await store.delete(checkpoint(Slot(slot)))
    assert (await reader.read(objects=False)).findings == ()


def test_a_store_without_slots_is_an_error() -> None:
    reader = StoreReader(MemoryStore(), VirtualClock(auto=False))
    with pytest.raises(ObjectNotFoundError, match="check the URL"):
        asyncio.run(reader.read(objects=True))
