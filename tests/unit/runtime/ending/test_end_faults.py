"""Whatever fails around the end of a job, or of a part of it, the output is right in the end."""

import asyncio
from collections import Counter

import pytest

from tests.support.depth import more_in_depth
from tests.support.faults import Fault, FaultKind, FaultyStore
from tests.support.harness import assert_nothing_is_left_over
from tests.support.pipelines import Outside, config, effects, run
from tests.support.pressure import checkpoints
from tests.unit.runtime.ending.jobs import (
    exited,
    long,
    operator,
    run_for,
    run_until,
    settings,
    short,
    side_by_side,
    uneven,
)
from tidelog import CheckpointFailedError, JobRunner, Schedule, TidelogError
from tidelog.checkpoint import coordinator
from tidelog.checkpoint.coordinator import Plan, make_plan
from tidelog.checkpoint.finished import fully_finished, partially_finished
from tidelog.ids import SubtaskId
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore


def faulty(inner: MemoryStore, *faults: Fault) -> FaultyStore:
    return FaultyStore(inner, faults, effects().clock)


def expected(source: object) -> list[tuple[str, int]]:
    return sorted(Counter(source.records).items())  # type: ignore[attr-defined]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_whichever_storage_call_fails_both_pipelines_commit_once(after: bool) -> None:
    left, right, chosen = short(), long(1, 25), config(parallelism=1)
    counting = faulty(MemoryStore())
    run(side_by_side(left, right, Outside(), Outside()), counting, chosen)
    calls = len(counting.calls)
    assert calls > 25
    # Outside of deep runs each call fails in one of the two ways.
    every = more_in_depth(2, 1)
    for nth in range(1 + after % every, calls + 1, every):
        inner, first, second = MemoryStore(), Outside(), Outside()
        job = side_by_side(left, right, first, second)
        try:
            run(job, faulty(inner, Fault(FaultKind.FAIL, nth=nth, after=after)), chosen)
        except TidelogError as error:
            assert "injected" in str(error), (nth, error)
        run(job, inner, chosen, seed=2)
        assert sorted(first.records) == expected(left), nth
        assert sorted(second.records) == expected(right), nth
        assert first.prepared == second.prepared == {}, nth
        assert_nothing_is_left_over(inner)


@pytest.mark.parametrize("parallelism", more_in_depth([2, 5], [1, 2, 5]))
def test_what_a_source_has_read_in_part_is_dealt_out_to_another_parallelism(
    parallelism: int,
) -> None:
    left, right, first, second, objects = uneven(5), long(2), Outside(), Outside(), MemoryStore()
    job = side_by_side(left, right, first, second)
    run_until(job, objects, lambda runner: exited(runner, "left") > 0, settings(parallelism=3))
    assert partially_finished(operator(checkpoints(objects)[-1], "left"))
    run(job, objects, settings(parallelism=parallelism), seed=2)
    assert sorted(first.records) == expected(left)
    assert sorted(second.records) == expected(right)


@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_finished_operators_are_skipped_at_any_parallelism(parallelism: int) -> None:
    left, right, first, second, objects = short(2), long(2), Outside(), Outside(), MemoryStore()
    job = side_by_side(left, right, first, second)
    run_for(job, objects, 8.0, settings(parallelism=2))
    assert fully_finished(operator(checkpoints(objects)[-1], "left"))
    opened, commits = left.opened, dict(first.commits)
    run(job, objects, settings(parallelism=parallelism), seed=2)
    assert (left.opened, dict(first.commits)) == (opened, commits)
    assert sorted(second.records) == expected(right)
    (last,) = checkpoints(objects)[-1:]
    assert len(operator(last, "left").subtasks) == parallelism and last.final


class StalePlans:
    """Plans made as if nobody had exited, until one of them was declined."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, predecessors: object, exited: set[SubtaskId]) -> Plan[SubtaskId]:
        plan = make_plan(predecessors, exited)  # type: ignore[arg-type, var-annotated]
        if not exited or self.made >= 2:
            return plan
        self.made += 1
        whole: Plan[SubtaskId] = make_plan(predecessors, set())  # type: ignore[arg-type]
        return Plan(whole.starts_at, plan.takes_part)


def test_a_task_that_finished_between_plan_and_trigger_costs_that_checkpoint_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stale = StalePlans()
    monkeypatch.setattr(coordinator, "make_plan", stale)
    left, right, first, second, objects = short(2), long(2), Outside(), Outside(), MemoryStore()
    runner = JobRunner(side_by_side(left, right, first, second), objects, settings(), effects())
    asyncio.run(runner.run())
    assert stale.made == 2 and runner.incarnation is not None
    assert runner.incarnation.driver.metrics.failed == 2
    assert "finished before the barrier reached it" in str(
        runner.incarnation.driver.metrics.last_failure
    )
    assert sorted(first.records) == expected(left)
    assert sorted(second.records) == expected(right)


def test_a_final_checkpoint_that_always_fails_ends_the_job_and_commits_nothing_of_it() -> None:
    left, first, inner = short(), Outside(), MemoryStore()
    chosen = config(checkpoint=Schedule(interval=50.0, tolerable_failures=2))
    # The start slot takes two: it is created, and proves that creating is exclusive.
    refused = [Fault(FaultKind.FAIL, "create", object_names.CHECKPOINTS, nth=n) for n in (3, 4, 5)]
    down = faulty(inner, *refused)
    job = side_by_side(left, short(), first, Outside())
    with pytest.raises(CheckpointFailedError, match="3 checkpoints in a row"):
        run(job, down, chosen)
    assert first.records == []
    run(job, inner, chosen, seed=2)
    assert sorted(first.records) == expected(left)


def test_the_final_checkpoint_comes_at_once_and_alone() -> None:
    """However long the interval: every task takes part in the one checkpoint there is."""
    left, right, first, second, objects = short(2), long(2), Outside(), Outside(), MemoryStore()
    chosen = settings(checkpoint=Schedule(interval=1e6, timeout=60.0))
    started = effects()
    runner = JobRunner(side_by_side(left, right, first, second), objects, chosen, started)
    asyncio.run(runner.run())
    (only,) = checkpoints(objects)
    assert only.final and all(fully_finished(each) for each in only.operators)
    assert all(any(s.seqno for s in operator(only, name).subtasks) for name in ("left", "right"))
    assert started.clock.monotonic() < 1000
    assert sorted(first.records + second.records) == sorted(expected(left) + expected(right))
