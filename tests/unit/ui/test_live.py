"""What the page makes of a running job's status.

What was seen is kept in bounded memory.
"""

import asyncio
from typing import Any

import msgspec

from tests.support.damage import checkpoint_in
from tests.support.jobs import config, every_kind, filled, virtual_effects
from tests.support.watching import done
from tidelog import JobRunner, status_of
from tidelog.ids import Slot
from tidelog.storage.memory import MemoryStore
from tidelog.ui.history import SeenCheckpoints
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
        sample(
            12,
            operator(records_in=500, busy_s=2.0, backpressured_s=5.0, late_records=4)
            | {"record_latency_s": {"min": 0.1, "median": 0.2, "p99": 0.7, "max": 3.0}},
        ),
    ).operators
    assert series == {
        "id": "count",
        "records_per_s": [None, 200.0],
        "busy": [None, 0.25],
        "backpressured": [None, 0.75],
        "late_per_s": [None, 1.5],
        "behind_s": [None, None],
        "latency_s": [None, 0.7],
    }


def test_workers_have_rates_between_two_looks() -> None:
    def look(at_s: float, *records: int) -> Sample:
        workers = [
            {"worker": at, "records_in": n, "busy_s": n / 100} for at, n in enumerate(records)
        ]
        return sample(at_s, operator(), workers=workers)

    shown = part(look(10, 100, 100), look(12, 150, 300)).workers
    assert [(each["worker"], each["records_per_s"], each["busy"]) for each in shown] == [
        (0, 25.0, 0.25),
        (1, 100.0, 1.0),
    ]
    assert part(look(10)).workers == []


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


def point(slot: int, **changes: Any) -> dict[str, Any]:
    return {"checkpoint": slot, "attempt": slot, **changes}


def test_checkpoints_are_told_apart_marked_and_forgotten() -> None:
    seen = SeenCheckpoints(limit=3)
    stored = {Slot(9): checkpoint_in(filled(), 9)}
    number = stored[Slot(9)].checkpoint_id
    seen.add([point(2), point(1), point(9, attempt=number + 1), point(9, attempt=number + 100)])
    seen.add([point(9, attempt=number)])
    found = [(each["attempt"], each["stored"]) for each in seen.all(stored)]
    assert found == [(number, True), (number + 1, False), (number + 100, False)]
