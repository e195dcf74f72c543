"""Sources end together, after the state before the end is durable; a job that had ended and finds
nothing new leaves no trace.
"""

from typing import Any

from tests.unit.checkpoint.test_coordinator import (
    PREDECESSORS,
    SCHEDULE,
    TASKS,
    acknowledge_all,
    all_end,
    trigger,
)
from tidelog.checkpoint.coordinator import Coordinator
from tidelog.checkpoint.decisions import (
    Abort,
    BeforeEnd,
    Drain,
    End,
    NothingNew,
    SavepointRequest,
    Store,
    Trigger,
)
from tidelog.checkpoint.ending import SourceEnds
from tidelog.ids import CheckpointId

SEVEN, EIGHT = CheckpointId(7), CheckpointId(8)
STATES = {"source": 0, "middle": 1, "sink": 2}
END = End(frozenset({"source"}))
STOP = SavepointRequest("stop", stop=True)


def ending(**options: Any) -> Coordinator[str, int]:
    ends = SourceEnds(TASKS, {"source": "orders"}, captures=True, **options)
    return Coordinator(PREDECESSORS, SCHEDULE, SEVEN, 0.0, ends=ends)


def before_end(checkpoint: int) -> object:
    return Trigger(CheckpointId(checkpoint), False, frozenset({"source"}), None, True)


def all_at_end(c: Coordinator[str, int], now: float) -> list[object]:
    decided: list[object] = []
    for task in TASKS:
        decided += c.at_end(task, now)
    return decided


def test_the_state_before_the_end_is_captured_when_all_tasks_have_handled_their_input() -> None:
    c = ending()
    assert c.at_end("source", 0.1) == c.at_end("middle", 0.2) == []
    assert c.at_end("sink", 0.3) == [before_end(7)]
    assert acknowledge_all(c, 7) == [BeforeEnd(SEVEN, STATES)]
    assert c.captured(SEVEN, 0.4) == [END]
    assert all_end(c, 0.5) == [trigger(8, final=True)]
    assert acknowledge_all(c, 8, TASKS) == [Store(EIGHT, STATES, True, None)]


def test_a_checkpoint_under_way_comes_before_it() -> None:
    c = ending()
    assert c.tick(1.0) == [trigger(7)]
    assert all_at_end(c, 1.1) == []
    acknowledge_all(c, 7)
    assert before_end(8) in c.stored(SEVEN, 1.2)


def test_a_capture_that_fails_is_tried_again_and_nothing_ends_meanwhile() -> None:
    c = ending()
    all_at_end(c, 0.1)
    assert c.declined(SEVEN, "no", 0.2) == [Abort(SEVEN, "no")]
    due = c.next_event_at()
    assert due is not None and due <= 1.2
    assert c.tick(due) == [before_end(8)]
    acknowledge_all(c, 8)
    assert c.captured(EIGHT, 2.0) == [END]


def test_a_stop_that_comes_meanwhile_stops_the_job_before_its_end() -> None:
    c = ending()
    all_at_end(c, 0.1)
    assert c.savepoint(STOP, 0.2) == []
    acknowledge_all(c, 7)
    assert c.captured(SEVEN, 0.3) == [trigger(8, STOP)]
    acknowledge_all(c, 8)
    c.stored(EIGHT, 0.4)
    assert c.finished


def test_a_drain_captures_the_state_before_it_and_one_into_rows_does_not() -> None:
    c = ending()
    native = SavepointRequest("drain", stop=True, drain=True)
    assert c.savepoint(native, 0.1) == [Drain()]
    assert all_at_end(c, 0.2) == [before_end(7)]
    acknowledge_all(c, 7)
    assert c.captured(SEVEN, 0.3) == [END]
    assert all_end(c, 0.4) == [trigger(8, native, final=True)]
    rows = SavepointRequest("rows", "canonical", stop=True, drain=True)
    c = ending()
    assert c.savepoint(rows, 0.1) == [Drain()]
    assert all_at_end(c, 0.2) == [END]


def test_a_job_that_had_ended_takes_no_checkpoint_before_it_has_found_input() -> None:
    c = ending(resumes_end=True)
    assert c.next_event_at() is None and c.tick(5.0) == [] and not c.asks_for_change(5.0)
    assert c.hurry(5.0) == (SEVEN, [])
    c.found_input()
    assert c.next_event_at() == 1.0
    assert c.tick(5.0) == [trigger(7)]


def test_a_job_that_had_ended_and_finds_nothing_leaves() -> None:
    c = ending(resumes_end=True)
    assert all_at_end(c, 0.1) == [NothingNew()]
    assert c.finished
    c = ending(resumes_end=True)
    c.found_input()
    assert all_at_end(c, 0.1) == [before_end(7)]


def test_a_source_ends_before_another_one_that_may_have_no_end() -> None:
    def ends(*endless: str) -> SourceEnds[str]:
        sources = {"a-0": "a", "a-1": "a", "b-0": "b"}
        return SourceEnds([*sources, "sink"], sources, endless=endless, captures=True)

    waiting = ends()
    assert waiting.at_end("a-0") == waiting.at_end("b-0") == waiting.at_end("a-1") == frozenset()
    assert not waiting.ready, "the sink has not handled all of it"
    assert waiting.at_end("sink") == frozenset() and waiting.ready
    assert waiting.captured() == {"a-0", "a-1", "b-0"}
    alone = ends("b")
    assert alone.at_end("a-0") == {"a-0"}
    assert alone.at_end("b-0") == {"b-0"} and not alone.ready
    of_one_source = ends("a")
    assert of_one_source.at_end("a-0") == frozenset(), "the other subtask is of the same source"
