"""What the page makes of a running job's status.

What was seen is kept in bounded memory.
"""

import asyncio
from typing import Any

import msgspec
import pytest

from tests.support.damage import checkpoint_in
from tests.support.jobs import config, every_kind, filled, virtual_effects
from tests.support.watching import done
from tidelog import ControlError, JobRunner, status_of
from tidelog.ids import Slot
from tidelog.storage.memory import MemoryStore
from tidelog.ui.history import Downsampled, SeenCheckpoints, SeenMaterializations
from tidelog.ui.live import LivePart, Sample, completed_points, live_part, new_tables, status_in

DONE = done({"job": "j"})


def operator(**changes: Any) -> dict[str, Any]:
    return {"id": "count", "parallelism": 2, **changes}


def sample(at_s: float, *operators: dict[str, Any], **status: Any) -> Sample:
    fields = {"job": "j", "at_s": at_s, "generation": 1, "operators": list(operators), **status}
    return Sample(int(at_s * 1000), status_in(done(fields)))


def part(*samples: Sample) -> LivePart:
    return live_part(DONE, samples, [each.to_keep() for each in samples])


def test_rates_are_those_between_two_looks_over_all_subtasks() -> None:
    [series] = part(
        sample(10, operator(records_in=100, busy_s=1.0, backpressured_s=2.0, late_records=1)),
        sample(12, operator(records_in=500, busy_s=2.0, backpressured_s=5.0, late_records=4)),
    ).operators
    assert series == {
        "id": "count",
        "records_per_s": [None, 200.0],
        "busy": [None, 0.25],
        "backpressured": [None, 0.75],
        "late_per_s": [None, 1.5],
        "behind_s": [None, None],
    }


@pytest.mark.parametrize(
    "later",
    [
        sample(12, operator(records_in=500), generation=2),
        sample(12, operator(records_in=99)),
        sample(12, {"id": "other", "records_in": 500}),
        sample(10, operator(records_in=500)),
    ],
    ids=["another incarnation", "a counter went back", "it is gone", "no time passed"],
)
def test_there_is_no_rate_where_there_is_nothing_to_go_by(later: Sample) -> None:
    found = part(sample(10, operator(records_in=100)), later)
    assert found.operators[0]["records_per_s"] == [None, None]
    assert found.now[0]["records_per_s"] is None


def test_event_time_is_behind_the_clock_unless_it_has_not_begun_or_is_over() -> None:
    marks = [None, 9_000, -(1 << 63), (1 << 63) - 1]
    [series] = part(*(sample(10, operator(watermark_ms=mark)) for mark in marks)).operators
    assert series["behind_s"] == [None, 1.0, None, None]


def test_tables_of_a_job_that_restores_are_not_known_to_be_empty() -> None:
    figures = {"state": {"table_bytes": 0}, "memory": {"used_bytes": 7}}
    looks = [sample(at, phase=p, **figures) for at, p in enumerate(("restoring", "running"))]
    series = part(*looks).series
    assert series["table_bytes"] == [None, 0] and series["memory_bytes"] == [7, 7]


def test_now_is_what_became_of_the_last_look_by_subtask() -> None:
    def look(at_s: float, *busy_s: float) -> Sample:
        tasks = [
            {"subtask": at, "busy_s": busy, "backpressured_s": busy / 2, "input_bytes": 7 * at}
            for at, busy in enumerate(busy_s)
        ]
        return sample(at_s, operator(records_in=100 * at_s, tasks=tasks))

    looks = [look(10, 1.0, 1.0), look(12, 1.5, 3.0)]
    [now] = part(*looks).now
    assert (now["id"], now["records_per_s"]) == ("count", 100.0)
    names = ("subtask", "busy", "backpressured", "input_bytes")
    shares = [tuple(task[name] for name in names) for task in now["tasks"]]
    assert shares == [(0, 0.25, 0.125, 0), (1, 1.0, 0.5, 7)]
    [alone] = part(looks[1]).now
    assert alone["records_per_s"] is None and [t["busy"] for t in alone["tasks"]] == [None, None]
    assert "tasks" not in looks[0].to_keep().operators["count"]


def test_a_real_status_has_every_figure_of_the_charts() -> None:
    runner = JobRunner(every_kind(), MemoryStore(), config(), virtual_effects())
    asyncio.run(runner.run())
    assert runner.incarnation is not None
    told = msgspec.json.encode((status_of(runner), list(runner.incarnation.driver.metrics.recent)))
    plain, recent = msgspec.json.decode(told)
    answer = done(plain, tuple(recent))
    status = status_in(answer)
    found = live_part(answer, [Sample(0, status)], [Sample(0, status).to_keep()])
    assert all(None not in values for values in found.series.values())
    assert found.series["memory_bytes"] == [status_of(runner).memory.used_bytes]
    assert status["operators"][0]["records_in"] > 0
    assert [task["subtask"] for task in found.now[0]["tasks"]] == [0, 1]
    tables = [table for each in recent for table in each["new_tables"]]
    assert [{**e, "at_ms": 0} for e in new_tables(answer)] == [{**t, "at_ms": 0} for t in tables]
    assert tables and [{"new_tables": 0, **point} for point in completed_points(answer)] == [
        {**each, "new_tables": 0} for each in recent
    ]


def test_what_another_release_adds_passes_through_and_what_it_lacks_is_not_known() -> None:
    status = {"job": "j", "operators": [{"id": "a", "new": 1, "tasks": [{"subtask": 0, "n": 2}]}]}
    look = Sample(0, status_in(done(status)))
    found = live_part(done(status), [look], [look.to_keep()])
    assert found.status == status
    assert found.now[0]["tasks"][0]["n"] == 2
    assert found.series["log_bytes"] == [None] and found.operators[0]["behind_s"] == [None]
    told = done(status, ({"slot": 3, "new": 1}, {"no": "slot"}, "x"))
    assert completed_points(told) == [{"slot": 3, "new": 1}] and new_tables(told) == []


@pytest.mark.parametrize("status", [{}, {"job": "j", "operators": "many"}])
def test_an_answer_that_makes_no_sense_is_an_error(status: dict[str, Any]) -> None:
    with pytest.raises(ControlError, match="use the release of tidelog that the job runs"):
        status_in(done(status))


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
