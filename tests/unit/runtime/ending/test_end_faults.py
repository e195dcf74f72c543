"""Whatever fails around the end of a job, or of a part of it, the output is right in the end.

What a status says of a job of which a part has ended, and of one that has ended as a whole.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.support.depth import more_in_depth
from tests.support.faults import SteerableStore
from tests.support.faulty_store import Fault, FaultKind, FaultyStore
from tests.support.harness import retained_objects
from tests.support.pipelines import Outside, Portions, config, effects, run
from tests.unit.runtime.ending.jobs import (
    checkpoints,
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
from tidelog import (
    CheckpointFailedError,
    Job,
    JobRunner,
    JobStatus,
    Schedule,
    TidelogError,
    status_of,
)
from tidelog.checkpoint import coordinator
from tidelog.checkpoint.coordinator import Plan, make_plan
from tidelog.checkpoint.finished import fully_finished, partially_finished
from tidelog.ids import SubtaskId
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore


def faulty(inner: MemoryStore, *faults: Fault) -> FaultyStore:
    return FaultyStore(inner, faults, effects().clock, Random(5))


def store() -> MemoryStore:
    return MemoryStore("memory://ending")


def expected(source: object) -> list[tuple[str, int]]:
    return sorted(Counter(source.records).items())  # type: ignore[attr-defined]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_whichever_storage_call_fails_both_pipelines_commit_once(after: bool) -> None:
    left, right, chosen = short(), long(1, 25), config(parallelism=1)
    counting = faulty(store())
    run(side_by_side(left, right, Outside(), Outside()), counting, chosen)
    calls = sum(counting.calls.values())
    assert calls > 25
    # Outside of deep runs each call fails in one of the two ways.
    every = more_in_depth(2, 1)
    for nth in range(1 + after % every, calls + 1, every):
        inner, first, second = store(), Outside(), Outside()
        job = side_by_side(left, right, first, second)
        try:
            run(job, faulty(inner, Fault(FaultKind.FAIL, nth=nth, after=after)), chosen)
        except TidelogError as error:
            assert "injected" in str(error), (nth, error)
        run(job, inner, chosen, seed=2)
        assert sorted(first.records) == expected(left), nth
        assert sorted(second.records) == expected(right), nth
        assert first.prepared == second.prepared == {}, nth
        names, needed = asyncio.run(retained_objects(inner, effects()))
        assert set(inner._objects) == names | needed, nth


@pytest.mark.parametrize("parallelism", more_in_depth([2, 5], [1, 2, 5]))
def test_what_a_source_has_read_in_part_is_dealt_out_to_another_parallelism(
    parallelism: int,
) -> None:
    left, right, first, second, objects = uneven(5), long(2), Outside(), Outside(), store()
    job = side_by_side(left, right, first, second)
    run_until(job, objects, lambda runner: exited(runner, "left") > 0, settings(parallelism=3))
    assert partially_finished(operator(checkpoints(objects)[-1], "left"))
    run(job, objects, settings(parallelism=parallelism), seed=2)
    assert sorted(first.records) == expected(left)
    assert sorted(second.records) == expected(right)


@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_finished_operators_are_skipped_at_any_parallelism(parallelism: int) -> None:
    left, right, first, second, objects = short(2), long(2), Outside(), Outside(), store()
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
    left, right, first, second, objects = short(2), long(2), Outside(), Outside(), store()
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
    left, first, inner = short(), Outside(), store()
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
    left, right, first, second, objects = short(2), long(2), Outside(), Outside(), store()
    chosen = settings(checkpoint=Schedule(interval=1e6, timeout=60.0))
    started = effects()
    runner = JobRunner(side_by_side(left, right, first, second), objects, chosen, started)
    asyncio.run(runner.run())
    (only,) = checkpoints(objects)
    assert only.final and all(fully_finished(each) for each in only.operators)
    assert all(any(s.seqno for s in operator(only, name).subtasks) for name in ("left", "right"))
    assert started.clock.monotonic() < 1000
    assert sorted(first.records + second.records) == sorted(expected(left) + expected(right))


NAMES = ("read-0", "read-1")


def reading(sinks: dict[str, Outside], see: Callable[[Any], Any]) -> Job:
    """Two sources whose splits end one after the other, in one from the last to the first."""
    splits = uneven().splits
    lengths = [len(records) for records in splits.values()]
    backwards = zip(splits, reversed(lengths), strict=True)
    job = Job("reading")
    for name, source in zip(
        NAMES, [uneven(), Portions({s: ["w"] * n for s, n in backwards})], strict=True
    ):
        job.source(source, name=name).map(see).rebalance().sink(sinks[name])
    return job


def test_after_a_restart_the_records_of_a_source_that_ended_in_part_are_counted() -> None:
    store, sinks = MemoryStore(), {name: Outside() for name in NAMES}
    ended: set[SubtaskId] = set()

    def each_has_ended_in_part(runner: JobRunner) -> bool:
        if runner.incarnation is not None:
            ended.update(task.id for task in runner.incarnation.tasks if task.exited)
        return {task.operator for task in ended} >= set(NAMES)

    run_until(reading(sinks, lambda r: r), store, each_has_ended_in_part, settings())
    assert len(ended) == 2
    assert {task.subtask for task in ended} == {0, 1}
    seen: list[Any] = []
    job = reading(sinks, lambda r: seen.append(r) or r)
    runner = JobRunner(job, store, settings(), effects(2))
    asyncio.run(runner.run())
    status = status_of(runner)
    assert [operator.id for operator in status.operators if operator.source] == list(NAMES)
    assert status.records_read == len(seen) > 0


async def test_a_materialization_that_the_end_of_the_job_cancels_has_not_failed() -> None:
    # The upload of the table waits for the store when the task ends.
    store, looks, hung = SteerableStore(MemoryStore()), list[JobStatus](), 0
    job = Job("counting")
    counted = job.source(long()).key_by(str).aggregate(lambda _: 1, lambda a, b: a + b)
    counted.sink(Outside())
    chosen = config(table="rocksdb")
    runner = JobRunner(job, store, chosen, effects())
    running = asyncio.ensure_future(runner.run())
    store.hold(object_names.TABLES)
    while not running.done():
        await runner.effects.clock.sleep(0.5)
        looks.append(status_of(runner))
        hung += store.waiting
    await running
    assert hung, "a materialization was under way"
    last = status_of(runner)
    assert last.materializations.started > last.materializations.completed
    assert last.materializations.failed == 0
    assert not any(look.materializations.failed for look in looks)
