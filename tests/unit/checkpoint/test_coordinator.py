"""The coordinator keeps its promises under every order of events."""

import math
from collections.abc import Collection, Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.property.profiles import looking
from tidelog.checkpoint.config import Change, CheckpointConfig
from tidelog.checkpoint.coordinator import Coordinator
from tidelog.checkpoint.decisions import Abort, Complete, FailJob, SavepointRequest, Store, Trigger
from tidelog.ids import CheckpointId

TASKS = ("source", "middle", "sink")
PREDECESSORS = {"source": [], "middle": ["source"], "sink": ["middle"]}
SCHEDULE = CheckpointConfig(interval=1.0, timeout=5.0, min_pause=0.5, tolerable_failures=2)


def coordinator(schedule: CheckpointConfig = SCHEDULE) -> Coordinator[str, int]:
    return Coordinator(PREDECESSORS, schedule, CheckpointId(7), now=0.0)


def trigger(
    checkpoint: int,
    savepoint: SavepointRequest | None = None,
    *,
    final: bool = False,
    at: tuple[str, ...] = ("source",),
) -> object:
    return Trigger(CheckpointId(checkpoint), final, frozenset(at), savepoint)


def complete(
    checkpoint: int,
    savepoint: SavepointRequest | None = None,
    *,
    final: bool = False,
    exited: tuple[str, ...] = (),
) -> object:
    """Every task's state is its place in the row of tasks."""
    states = {task: TASKS.index(task) for task in exited}
    return Complete(CheckpointId(checkpoint), final, states, savepoint)


def acknowledge_all(
    c: Coordinator[str, int], checkpoint: int, finished: Collection[str] = ()
) -> list[object]:
    decided: list[object] = []
    for number, task in enumerate(TASKS):
        done = task in finished
        decided += c.acknowledged(CheckpointId(checkpoint), task, number, finished=done)
    return decided


def completed(
    c: Coordinator[str, int], checkpoint: int, now: float, finished: Collection[str] = ()
) -> Sequence[object]:
    """What is decided when a checkpoint that all have acknowledged is stored."""
    acknowledge_all(c, checkpoint, finished)
    return c.stored(CheckpointId(checkpoint), now)


def all_end(c: Coordinator[str, int], now: float) -> Sequence[object]:
    """What is decided when the last task ends."""
    return [c.ended(task, now) for task in TASKS][-1]


def test_a_late_checkpoint_is_given_up_and_names_who_it_waited_for() -> None:
    c = coordinator()
    c.tick(1.0)
    c.acknowledged(CheckpointId(7), "middle", 1)
    assert c.next_event_at() == 6.0
    assert c.tick(5.9) == []
    (abort,) = c.tick(6.0)
    assert isinstance(abort, Abort)
    assert "sink, source" in abort.reason


def test_a_manifest_on_its_way_is_never_given_up() -> None:
    c = coordinator()
    c.tick(1.0)
    acknowledge_all(c, 7)
    assert c.tick(100.0) == []
    assert c.next_event_at() is None, "the driver would ask in a tight loop"
    assert c.stored(CheckpointId(7), 100.0) == [complete(7)]


def test_a_pause_follows_a_slow_checkpoint_and_the_interval_a_fast_one() -> None:
    c = coordinator()
    c.tick(1.0)
    completed(c, 7, 1.1)
    assert c.next_event_at() == 2.0
    c.tick(2.0)
    completed(c, 8, 4.0)
    assert c.next_event_at() == 4.5


def test_more_failures_in_a_row_than_tolerated_fail_the_job() -> None:
    c = coordinator()
    now = 1.0
    for checkpoint in (7, 8):
        c.tick(now)
        assert len(c.declined(CheckpointId(checkpoint), "no", now)) == 1
        now += 1.0
    c.tick(now)
    nine = CheckpointId(9)
    assert c.declined(nine, "no", now) == [Abort(nine, "no"), FailJob(3, "no")]


def test_a_completed_checkpoint_forgives_earlier_failures() -> None:
    c = coordinator()
    c.tick(1.0)
    c.declined(CheckpointId(7), "no", 1.0)
    c.tick(2.0)
    completed(c, 8, 2.0)
    assert c.consecutive_failures == 0


def test_a_checkpoint_under_way_at_the_end_is_followed_by_the_final_one_at_once() -> None:
    c = coordinator()
    c.tick(1.0)
    for task in TASKS:
        assert c.ended(task, 1.1) == []
    assert completed(c, 7, 1.2) == [complete(7), trigger(8, final=True)]


def test_the_rest_of_a_job_ends_with_a_final_checkpoint_at_once() -> None:
    c = Coordinator(PREDECESSORS, SCHEDULE, CheckpointId(7), 0.0, exited=["source"])
    assert c.ended("middle", 0.1) == []
    assert c.ended("sink", 0.1) == [trigger(7, final=True, at=("middle",))]
    assert completed(c, 7, 0.2, TASKS) == [complete(7, final=True, exited=TASKS[1:])]


def test_a_job_stopped_without_drain_ends_with_a_checkpoint_that_is_not_the_end_of_its_data() -> (
    None
):
    c = coordinator()
    all_end(c, 0.1)
    (store,) = acknowledge_all(c, 7)
    assert isinstance(store, Store) and not store.final
    assert c.stored(CheckpointId(7), 0.2) == [complete(7, final=True, exited=TASKS)]
    assert c.finished


event = st.one_of(
    st.tuples(st.just("tick"), st.floats(0.0, 3.0)),
    st.tuples(st.just("acknowledge"), st.sampled_from(TASKS), st.integers(-1, 0)),
    st.tuples(st.just("acknowledge all")),
    st.tuples(st.just("decline"), st.integers(-1, 0)),
    st.tuples(st.just("end"), st.sampled_from(TASKS)),
    st.tuples(st.just("stored")),
    st.tuples(st.just("store failed")),
)


@looking(100)
@given(st.lists(event, max_size=60))
def test_every_order_of_events_keeps_the_invariants(events: list[tuple[object, ...]]) -> None:
    """A snapshot contains a task's finish when the task had ended before it."""
    c = coordinator(CheckpointConfig(interval=1.0, timeout=5.0, tolerable_failures=10**6))
    now = 0.0
    newest = 6
    state: str | None = None  # of the newest checkpoint: "running", "storing" or None
    running = set(TASKS)
    acknowledged: dict[str, bool] = {}
    ended: set[str] = set()
    last = final_done = False

    for name, *arguments in events:
        decided: list[object] = []
        if name == "tick":
            now += float(arguments[0])  # type: ignore[arg-type]
            decided += c.tick(now)
        elif name == "acknowledge":
            task, back = str(arguments[0]), int(arguments[1])  # type: ignore[call-overload]
            if back == 0 and state == "running" and task in running:
                acknowledged.setdefault(task, task in ended)
            checkpoint = CheckpointId(newest + back)
            decided += c.acknowledged(checkpoint, task, 1, finished=task in ended)
        elif name == "acknowledge all":
            if state == "running":
                for task in running:
                    acknowledged.setdefault(task, task in ended)
            decided += acknowledge_all(c, newest, ended)
        elif name == "decline":
            if state != "storing":
                decided += c.declined(CheckpointId(newest + int(arguments[0])), "no", now)  # type: ignore[call-overload]
        elif name == "end":
            ended.add(str(arguments[0]))
            decided += c.ended(str(arguments[0]), now)
        elif name == "stored" and state == "storing":
            decided += c.stored(CheckpointId(newest), now)
        elif name == "store failed" and state == "storing":
            decided += c.declined(CheckpointId(newest), "store", now)

        for decision in decided:
            match decision:
                case Trigger(checkpoint, final, starts_at):
                    assert state is None and not final_done
                    assert checkpoint == newest + 1, "an id is used once"
                    assert final == (ended == set(TASKS))
                    assert starts_at == {
                        task for task in running if not running.intersection(PREDECESSORS[task])
                    }
                    newest, state, last, acknowledged = checkpoint, "running", final, {}
                case Store(checkpoint, states, all_finish):
                    assert (checkpoint, state) == (newest, "running")
                    assert set(states) == running == acknowledged.keys()
                    assert all_finish == all(acknowledged.values())
                    state = "storing"
                case Complete(checkpoint, final, exited):
                    assert (checkpoint, state) == (newest, "storing")
                    assert final == (last or all(acknowledged.values()))
                    finished = {task for task, finish in acknowledged.items() if finish}
                    assert exited.keys() == (running if final else finished)
                    state, final_done, running = None, final, running - exited.keys()
                case Abort(checkpoint, _):
                    assert checkpoint == newest and state is not None
                    state = None
        assert c.in_progress == (newest if state else None)
        assert c.finished == final_done


@given(
    st.floats(0.001, 1e6, allow_nan=False, allow_infinity=False),
    st.floats(0.001, 1e4, allow_nan=False, allow_infinity=False),
)
def test_at_the_moment_it_asked_for_there_is_something_to_decide(
    interval: float, timeout: float
) -> None:
    c = coordinator(CheckpointConfig(interval=interval, timeout=timeout))
    for _ in range(3):
        due = c.next_event_at()
        assert due is not None
        # Without rounding errors between the two, or a driver would ask again at once, for ever.
        assert c.tick(due) != []


def test_a_checkpoint_that_somebody_waits_for_is_tried_again_soon() -> None:
    c = coordinator(
        CheckpointConfig(interval=3600, timeout=5.0, min_pause=0.5, tolerable_failures=9)
    )
    assert c.hurry(1.0) == (7, [trigger(7)])
    c.declined(CheckpointId(7), "no", 2.0)
    assert c.next_event_at() == 3.0
    assert c.tick(3.0) == [trigger(8)]
    completed(c, 8, 4.0)
    assert c.next_event_at() == 3603.0
    c.tick(3603.0)
    c.declined(CheckpointId(9), "no", 3604.0)  # nobody waits
    assert c.next_event_at() == 7204.0


@pytest.mark.parametrize("interval", [3600, math.inf])
def test_the_end_of_a_job_waits_no_interval_for_a_checkpoint_that_failed(interval: float) -> None:
    c = coordinator(
        CheckpointConfig(interval=interval, timeout=5.0, min_pause=0.5, tolerable_failures=9)
    )
    assert all_end(c, 1.0) == [trigger(7, final=True)]
    c.declined(CheckpointId(7), "no", 2.0)
    assert c.next_event_at() == 3.0
    assert c.tick(3.0) == [trigger(8, final=True)]


def test_who_asks_while_a_checkpoint_is_under_way_that_fails_waits_no_interval_either() -> None:
    c = coordinator(
        CheckpointConfig(interval=3600, timeout=5.0, min_pause=0.5, tolerable_failures=9)
    )
    c.tick(3600.0)
    assert c.hurry(3600.5) == (8, [])
    c.declined(CheckpointId(7), "no", 3601.0)
    assert c.tick(3602.0) == [trigger(8)]


def test_a_checkpoint_that_somebody_waits_for_is_tried_again_though_nothing_has_changed() -> None:
    c = coordinator()
    assert c.hurry(0.5) == (7, [trigger(7)])
    c.declined(CheckpointId(7), "no", 0.6)
    assert c.tick(1.6, change=Change.NONE) == [trigger(8)]
    completed(c, 8, 1.7)
    assert c.tick(2.7, change=Change.NONE) == [], "nobody waits any more"


def test_what_changes_only_positions_waits_for_the_idle_interval() -> None:
    c = coordinator(CheckpointConfig(interval=1.0, idle_interval=2.5))
    assert c.tick(1.0) == [trigger(7)]
    completed(c, 7, 1.1)
    assert c.tick(2.0, change=Change.POSITION) == []
    assert c.next_event_at() == 3.0
    assert c.tick(3.0, change=Change.POSITION) == []
    assert c.next_event_at() == 3.5
    assert c.tick(3.5, change=Change.POSITION) == [trigger(8)]


def test_without_an_idle_interval_an_idle_job_takes_a_checkpoint_at_each_interval() -> None:
    c = coordinator(CheckpointConfig(interval=1.0, idle_interval=0.0))
    assert c.tick(1.0, change=Change.NONE) == [trigger(7)]
    completed(c, 7, 1.1)
    assert c.tick(2.0, change=Change.NONE) == [trigger(8)]


def test_an_idle_job_still_takes_a_savepoint_at_once_and_its_final_checkpoint() -> None:
    c = coordinator()
    assert c.tick(1.0, change=Change.NONE) == []
    wanted = SavepointRequest("wanted")
    assert c.savepoint(wanted, 1.5) == [trigger(7, wanted)]
    completed(c, 7, 1.6)
    assert all_end(c, 2.0) == [trigger(8, final=True)]
    c.declined(CheckpointId(8), "no", 2.1)
    assert not c.asks_for_change(3.1), "the end is waited for, whatever has changed"
    assert c.tick(3.1, change=Change.NONE) == [trigger(9, final=True)]
