"""What was seen is kept in bounded memory."""

from typing import Any

from tests.support.damage import checkpoint_in
from tests.support.jobs import filled
from tidelog.ids import Slot
from tidelog.ui.history import Downsampled, SeenCheckpoints, SeenMaterializations


def test_a_long_list_keeps_its_first_item_and_even_distances() -> None:
    samples: Downsampled[int] = Downsampled(limit=8)
    for number in range(9):
        samples.add(number)
    assert samples.all() == [0, 2, 4, 6, 8]
    for number in range(9, 1001):
        samples.add(number)
    assert samples.all() == list(range(0, 1001, 128))


def point(slot: int, **changes: Any) -> dict[str, Any]:
    return {"slot": slot, "checkpoint_id": slot, **changes}


def test_a_checkpoint_that_says_where_its_time_went_replaces_one_that_does_not() -> None:
    told = point(3, phases={"durable_s": 1})
    for order in ([told, point(3)], [point(3), told]):
        seen = SeenCheckpoints()
        for each in order:
            seen.add([each])
        assert seen.all({}) == [{**told, "stored": False}]


def test_checkpoints_are_told_apart_marked_and_forgotten() -> None:
    seen = SeenCheckpoints(limit=3)
    stored = {Slot(9): checkpoint_in(filled(), 9)}
    number = stored[Slot(9)].checkpoint_id
    seen.add([point(2), point(1), point(9), point(9, checkpoint_id=number + 100)])
    seen.add([point(9, checkpoint_id=number)])
    found = [(each["checkpoint_id"], each["stored"]) for each in seen.all(stored)]
    assert found == [(number, True), (9, False), (number + 100, False)]


def tables(slot: int) -> dict[tuple[str, int, int], int]:
    """The tables that a checkpoint names, and when it was completed."""
    entry = checkpoint_in(filled(), slot)
    return {
        (operator.id, state.index, state.materialization.upto): entry.created_ms
        for operator, state in entry.subtasks()
        if state.materialization is not None
    }


def test_an_upload_is_dated_by_the_first_checkpoint_that_names_it() -> None:
    seen = SeenMaterializations()
    seen.add({Slot(7): checkpoint_in(filled(), 7)})
    assert seen.all() == []  # They may be older than the checkpoint.
    seen.add({Slot(slot): checkpoint_in(filled(), slot) for slot in (7, 8, 9)})
    dated = {(e["operator"], e["subtask"], e["upto"]): e["at_ms"] for e in seen.all()}
    first = tables(9) | tables(8)
    assert dated and dated == {key: at for key, at in first.items() if key not in tables(7)}


def test_what_the_job_tells_of_an_upload_counts() -> None:
    seen = SeenMaterializations()
    seen.add({Slot(9): checkpoint_in(filled(), 9)})
    operator, subtask, upto = next(iter(tables(9)))
    event = {"operator": operator, "subtask": subtask, "upto": upto, "at_ms": 7, "table_bytes": 1}
    seen.add_events([event])
    assert seen.all() == [event]


def test_what_the_job_told_before_its_restart_stays_and_the_oldest_goes() -> None:
    uploads = [{"operator": "count", "subtask": 0, "at_ms": at, "upto": at} for at in range(1, 6)]
    seen = SeenMaterializations(limit=3)
    seen.add_events(uploads[:2])
    seen.add_events(uploads[2:3])
    assert seen.all() == uploads[:3]
    seen.add_events(uploads[3:])
    assert seen.all() == uploads[2:]
