"""The coordinator and savepoints: one at a time, answered always, never in the way of the rest."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.property.profiles import looking
from tests.unit.checkpoint.test_coordinator import (
    TASKS,
    acknowledge_all,
    all_end,
    complete,
    completed,
    coordinator,
    trigger,
)
from tidelog.checkpoint.decisions import (
    Abort,
    Complete,
    Drain,
    FailJob,
    Refuse,
    SavepointRequest,
    Store,
)
from tidelog.ids import CheckpointId

PLAIN = SavepointRequest("plain")
STOP = SavepointRequest("stop", stop=True)
DRAIN = SavepointRequest("drain", stop=True, drain=True)


def test_a_savepoint_is_triggered_at_once_and_periodic_checkpoints_go_on_after_it() -> None:
    c = coordinator()
    seven, states = CheckpointId(7), {"source": 0, "middle": 1, "sink": 2}
    assert c.savepoint(PLAIN, 0.2) == [trigger(7, PLAIN)]
    assert acknowledge_all(c, 7) == [Store(seven, states, False, PLAIN)]
    assert c.stored(seven, 0.3) == [complete(7, PLAIN)]
    assert not c.finished
    due = c.next_event_at()
    assert due == 1.2
    assert c.tick(due) == [trigger(8)]


@pytest.mark.parametrize("first", [PLAIN, STOP, DRAIN])
@pytest.mark.parametrize("busy", [False, True])
def test_of_two_savepoints_at_a_time_the_second_is_refused_and_named_the_first(
    first: SavepointRequest, busy: bool
) -> None:
    c = coordinator()
    if busy:
        c.tick(1.0)
    c.savepoint(first, 1.1)
    (refuse,) = c.savepoint(SavepointRequest("second"), 1.2)
    assert isinstance(refuse, Refuse)
    assert refuse.savepoint.name == "second"
    assert repr(first.name) in refuse.reason


def test_a_failed_savepoint_is_told_and_is_no_failure_in_a_row_and_another_one_works() -> None:
    c = coordinator()
    for attempt in range(7, 17):
        c.savepoint(PLAIN, 0.1)
        assert c.declined(CheckpointId(attempt), "no", 0.2) == [
            Abort(CheckpointId(attempt), "no", savepoint=PLAIN)
        ]
    assert c.consecutive_failures == 0
    assert c.savepoint(PLAIN, 0.3) == [trigger(17, PLAIN)]


def test_a_savepoint_has_a_timeout_of_its_own() -> None:
    c = coordinator()
    c.savepoint(SavepointRequest("patient", timeout_s=60.0), 0.0)
    assert c.next_event_at() == 60.0
    assert c.tick(59.0) == []
    (abort,) = c.tick(60.0)
    assert isinstance(abort, Abort)
    assert "after 60.0 s" in abort.reason


def test_a_job_is_over_with_the_savepoint_it_stops_with() -> None:
    c = coordinator()
    c.savepoint(STOP, 0.1)
    assert completed(c, 7, 0.2) == [complete(7, STOP, final=True, exited=TASKS)]
    assert c.finished
    assert c.tick(100.0) == []
    assert isinstance(c.savepoint(PLAIN, 100.0)[0], Refuse)


def test_a_drain_ends_the_sources_and_its_savepoint_is_the_final_checkpoint() -> None:
    c = coordinator()
    assert c.savepoint(DRAIN, 0.1) == [Drain()]
    assert all_end(c, 0.2) == [trigger(7, DRAIN, final=True)]


def test_no_checkpoint_holds_a_part_of_a_drain() -> None:
    """A start that found it would read no more of what the drained sources had left."""
    c = coordinator()
    c.tick(1.0)
    assert c.savepoint(DRAIN, 1.1) == [Drain()]
    c.ended("source", 1.2)
    least, decisions = c.hurry(1.3)
    assert decisions == [], "who waits for a checkpoint waits for the last one"
    assert completed(c, 7, 1.4) == [complete(7)]
    assert c.next_event_at() is None
    assert c.tick(100.0) == []
    c.ended("middle", 100.1)
    assert c.ended("sink", 100.2) == [trigger(8, DRAIN, final=True)]
    assert least == 8


def test_after_a_checkpoint_that_failed_while_the_job_drains_the_next_one_is_the_last() -> None:
    c = coordinator()
    c.tick(1.0)
    c.savepoint(DRAIN, 1.1)
    assert c.declined(CheckpointId(7), "no", 1.2) == [Abort(CheckpointId(7), "no")]
    assert c.tick(100.0) == []
    assert all_end(c, 100.1) == [trigger(8, DRAIN, final=True)]


def test_a_drain_that_failed_is_tried_again_until_too_many_failed() -> None:
    c = coordinator()
    c.savepoint(DRAIN, 0.1)
    all_end(c, 0.3)
    assert c.declined(CheckpointId(7), "no", 0.4) == [Abort(CheckpointId(7), "no")]
    assert c.tick(1.4) == [trigger(8, DRAIN, final=True)]
    c.declined(CheckpointId(8), "no", 1.5)
    c.tick(2.5)
    assert c.declined(CheckpointId(9), "no", 2.6)[1:] == [FailJob(3, "no")]


step = st.one_of(
    st.tuples(st.just("tick"), st.floats(0.0, 3.0)),
    st.tuples(st.just("savepoint"), st.sampled_from([PLAIN, STOP, DRAIN])),
    st.tuples(st.just("acknowledge"), st.none()),
    st.tuples(st.just("decline"), st.none()),
    st.tuples(st.just("stored"), st.none()),
    st.tuples(st.just("end"), st.sampled_from(TASKS)),
)


@looking(100)
@given(st.lists(step, max_size=40))
def test_every_savepoint_is_answered_once_and_one_at_a_time_is_under_way(
    steps: list[tuple[str, object]],
) -> None:
    c, now, asked, answered = coordinator(), 0.0, 0, 0
    storing = failed = False
    for kind, value in steps:
        current = c.in_progress
        decided: list[object] = []
        now += value if isinstance(value, float) else 0.01
        if kind == "tick":
            decided = list(c.tick(now))
        elif isinstance(value, SavepointRequest):
            asked += 1
            decided = list(c.savepoint(value, now))
        elif kind == "end":
            decided = list(c.ended(str(value), now))
        elif current is None:
            continue
        elif kind == "acknowledge":
            decided = acknowledge_all(c, current)
        elif kind == "decline":
            decided = list(c.declined(current, "no", now))
        elif storing:
            decided = list(c.stored(current, now))
        for decision in decided:
            assert not failed
            if isinstance(decision, Abort | Complete):
                storing = False
                answered += decision.savepoint is not None
            storing = storing or isinstance(decision, Store)
            answered += isinstance(decision, Refuse)
            failed = failed or isinstance(decision, FailJob)
        if failed:
            return
        assert 0 <= asked - answered <= 1


def test_nobody_leaves_with_a_savepoint_for_its_owner_may_delete_it() -> None:
    c = coordinator()
    c.ended("source", 0.1)
    c.savepoint(PLAIN, 0.2)
    assert completed(c, 7, 0.3, ["source"]) == [complete(7, PLAIN)]


def test_the_savepoint_of_a_drain_holds_the_state_of_all_tasks() -> None:
    """A checkpoint under way at the end lets nobody go, though it contains every finish."""
    c = coordinator()
    c.tick(1.0)
    assert c.savepoint(DRAIN, 1.1) == [Drain()]
    all_end(c, 1.2)
    assert completed(c, 7, 1.3, TASKS) == [complete(7), trigger(8, DRAIN, final=True)]
    assert not c.finished
