"""The document says of a store what its objects say.

The page reads a store at little cost, and what is damaged again and again.
"""

import asyncio

import pytest

from tests.support import pipelines
from tests.support.damage import (
    Damage,
    checkpoint_in,
    damaged,
    flipped,
    of_a_newer_release,
    truncated,
)
from tests.support.jobs import contents, filled
from tests.support.pipelines import Outside, words
from tests.support.watching import document_of
from tidelog import JobRunner, Savepoint
from tidelog.checkpoint.manifest import encode_entry
from tidelog.checkpoint.sizes import checkpoint_sizes
from tidelog.ids import Slot
from tidelog.state.restore.progress import RestoreProgress
from tidelog.storage.memory import MemoryStore
from tidelog.storage.object_names import checkpoint
from tidelog.ui.document import Document


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
    manifests = fetch.slots.bytes + fetch.described.bytes
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
    assert name in shown.problem
    [problem] = document.problems
    assert (problem.where, problem.unusable) == (name, (slot,))
    assert "restore slot" in problem.action or "release that wrote it" in problem.action
    assert document.restore.slot == (9 if slot == 7 else 8)


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
