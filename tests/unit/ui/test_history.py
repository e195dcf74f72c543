"""What was seen is kept in bounded memory."""

from typing import Any

from tests.support.damage import checkpoint_in
from tests.support.jobs import filled
from tidelog.ids import Slot, SubtaskId
from tidelog.ui.document import CheckpointPoint, Materialized, Phases
from tidelog.ui.history import Downsampled, FirstNamed, SeenCheckpoints, SeenMaterializations


def test_a_long_list_keeps_its_first_item_and_even_distances() -> None:
    samples: Downsampled[int] = Downsampled(limit=8)
    for number in range(9):
        samples.add(number)
    assert samples.all() == [0, 2, 4, 6, 8]
    for number in range(9, 1001):
        samples.add(number)
    kept = samples.all()
    assert kept == list(range(0, 1001, 128)) and len(kept) <= 8


def point(slot: int, **changes: Any) -> CheckpointPoint:
    fields: dict[str, Any] = {"checkpoint_id": slot, "generation": 0, "at_ms": slot, "stored": True}
    return CheckpointPoint(slot=slot, **{**fields, **changes})


def test_a_checkpoint_that_says_where_its_time_went_replaces_one_that_does_not() -> None:
    told = point(3, phases=Phases(0, 0, 1, 0))
    for order in ([told, point(3)], [point(3), told]):
        seen = SeenCheckpoints()
        for each in order:
            seen.add([each])
        assert seen.all() == [told]


def test_a_slot_that_was_written_again_is_another_checkpoint() -> None:
    seen = SeenCheckpoints()
    seen.add([point(3), point(3, checkpoint_id=9)])
    assert [each.checkpoint_id for each in seen.all()] == [3, 9]


def test_the_oldest_checkpoints_are_forgotten() -> None:
    seen = SeenCheckpoints(limit=3)
    seen.add(point(slot) for slot in (5, 1, 4, 2, 3))
    assert [each.slot for each in seen.all()] == [3, 4, 5]


def test_an_upload_is_dated_by_the_first_checkpoint_that_names_it() -> None:
    checkpoints = {Slot(slot): checkpoint_in(filled(), slot) for slot in (7, 8, 9)}
    refs = {
        slot: {
            state.materialization: SubtaskId(operator.id, state.index)
            for operator, state in entry.subtasks()
            if state.materialization is not None
        }
        for slot, entry in checkpoints.items()
    }
    seen = SeenMaterializations()
    seen.add({Slot(7): checkpoints[Slot(7)]})
    assert seen.events() == []  # They may be older than the checkpoint.
    assert all((f := seen.first(who, ref)) and f.before for ref, who in refs[Slot(7)].items())
    seen.add(checkpoints)
    new = (refs[Slot(8)].keys() | refs[Slot(9)].keys()) - refs[Slot(7)].keys()
    assert new and len(seen.events()) == len(new)
    for ref in new:
        slot = Slot(8) if ref in refs[Slot(8)] else Slot(9)
        first = seen.first(refs[slot][ref], ref)
        assert first is not None and first.event.at_ms == checkpoints[slot].created_ms
        assert (first.event.operator, first.event.subtask) == refs[slot][ref]


def test_what_the_job_tells_of_an_upload_counts() -> None:
    entry = checkpoint_in(filled(), 9)
    [(who, ref), *_] = [
        (SubtaskId(operator.id, state.index), state.materialization)
        for operator, state in entry.subtasks()
        if state.materialization is not None
    ]
    seen = SeenMaterializations()
    seen.add({Slot(9): entry})
    event = Materialized(*who, 7, ref.table_bytes, ref.upto)
    seen.told([event])
    assert seen.first(who, ref) == FirstNamed(event, before=False)
    assert seen.events() == [event]


def test_what_the_job_told_before_its_restart_stays_and_the_oldest_goes() -> None:
    uploads = [Materialized("count", 0, at_ms, 1, at_ms) for at_ms in range(5)]
    seen = SeenMaterializations(limit=3)
    seen.told(uploads[:2])
    seen.told(uploads[2:3])
    assert seen.events() == uploads[:3]
    seen.told(uploads[3:])
    assert seen.events() == uploads[2:]


def test_the_oldest_uploads_are_forgotten() -> None:
    seen = SeenMaterializations(limit=1)
    seen.add({Slot(9): checkpoint_in(filled(), 9)})
    refs = [
        (SubtaskId(operator.id, state.index), state.materialization)
        for operator, state in checkpoint_in(filled(), 9).subtasks()
        if state.materialization is not None
    ]
    assert [seen.first(who, ref) is not None for who, ref in refs].count(True) == 1
    assert len(refs) > 1
