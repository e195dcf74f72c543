"""Checkpoints and savepoints of a job of which a part has ended: they go on, a restart runs
that part no more, nothing is read twice and nothing waits."""

import asyncio
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from tests.support.depth import more_in_depth, one_by_one
from tests.support.faults import Failure, SteerableStore
from tests.support.pipelines import Outside, acted_on, effects, run
from tests.support.pressure import checkpoints
from tests.unit.runtime.ending.jobs import (
    assert_counted,
    exited,
    long,
    merged,
    operator,
    run_for,
    settings,
    short,
    side_by_side,
    uneven,
)
from tidelog import (
    Job,
    JobRunner,
    RestoreFrom,
    Savepoint,
    SavepointFailedError,
    SinkContext,
    SinkWriter,
    UnalignedConfig,
    UserFunctionError,
)
from tidelog.checkpoint.finished import exited_state, fully_finished, partially_finished
from tidelog.checkpoint.manifest import OperatorState
from tidelog.runtime.config import UnalignedMode
from tidelog.runtime.subtasks.incarnation import LocalSubtasks
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectStore


def has_state(operator: OperatorState) -> list[bool]:
    return [subtask.seqno > subtask.start for subtask in operator.subtasks]


@one_by_one(changelog={"log": True, "tables": False}, parallelism=[1, 2, 3, 4, 5])
def test_a_short_source_finishes_and_checkpoints_of_the_rest_go_on(
    parallelism: int, changelog: bool
) -> None:
    left, right, sink, objects = short(3), long(3), Outside(), MemoryStore()
    run(merged(left, right, sink), objects, settings(parallelism=parallelism, changelog=changelog))
    assert dict(sink.records) == Counter(left.records + right.records)
    taken = checkpoints(objects)
    finished = [c for c in taken if fully_finished(operator(c, "left"))]
    assert len(finished) > 5 and finished == taken[-len(finished) :]
    assert any(has_state(operator(finished[0], "left"))), "the first one with the finish has it all"
    for later in finished[1:]:
        assert not any(has_state(operator(later, "left"))), "marks alone"
        assert any(has_state(operator(later, "aggregate")))
    assert [c.final for c in taken] == [False] * (len(taken) - 1) + [True]


@pytest.mark.parametrize("parallelism", more_in_depth([1, 2, 5], [1, 2, 3, 4, 5]))
def test_subtasks_of_one_source_finish_one_by_one_and_keep_their_positions(
    parallelism: int,
) -> None:
    source, sink, objects = uneven(4), Outside(), MemoryStore()
    run(merged(source, long(4, 60), sink), objects, settings(parallelism=parallelism))
    taken = [operator(c, "left") for c in checkpoints(objects)]
    partial = [each for each in taken if partially_finished(each)]
    assert (len(partial) > 3) == (parallelism > 1)
    for before, after in pairwise(partial):
        for was, now in zip(before.subtasks, after.subtasks, strict=True):
            if was.finished:
                assert exited_state(was, positions=True) == now, "kept as it was"
    kept = [s for each in partial[1:] for s in each.subtasks if s.finished and s.seqno > s.start]
    assert bool(kept) == (parallelism > 1)
    (first, *later) = [each for each in taken if fully_finished(each)]
    assert any(has_state(first)) and later
    assert not any(any(has_state(each)) for each in later)


def test_a_finished_task_frees_what_it_held_while_others_run() -> None:
    seen: list[JobRunner] = []

    def look(runner: JobRunner) -> None:
        incarnation = runner.incarnation
        seen.append(runner)
        gone = {task.id.operator for task in incarnation.tasks if task.exited}
        assert gone == {"left", "left-count", "left-out"}
        subtasks = incarnation.states.subtasks
        assert {task.operator for task, subtask in subtasks.items() if subtask.released} == gone
        materialized = {m.snapshots.operator for m in incarnation.states.materializers}
        assert materialized == {"right", "right-count", "right-out"}
        assert isinstance(incarnation.subtasks, LocalSubtasks)
        assert not any("left" in name for name in incarnation.subtasks.objects())

    first, second = Outside(), Outside()
    job = side_by_side(short(2), long(2), first, second)
    run_for(job, MemoryStore(), 8.0, settings(parallelism=1, table="rocksdb"), look=look)
    assert seen


def test_the_pipeline_that_ends_first_commits_its_last_records_while_the_other_runs() -> None:
    left, right, first, second = short(2), long(2), Outside(), Outside()

    def look(runner: JobRunner) -> None:
        assert_counted((left, first))
        assert second.records == []

    run_for(side_by_side(left, right, first, second), MemoryStore(), 8.0, look=look)


@one_by_one(
    changelog={"log": True, "tables": False},
    mode=["off", "always"],
    seconds=[1.5, 3.1, 4.2, 6.3, 8.4, 11.7],
    parallelism=[1, 3],
)
def test_a_crash_at_any_time_reads_nothing_twice(
    parallelism: int, seconds: float, mode: UnalignedMode, changelog: bool
) -> None:
    left, right, first, second, objects = uneven(4), long(2), Outside(), Outside(), MemoryStore()
    unaligned = UnalignedConfig(mode)
    chosen = settings(parallelism=parallelism, changelog=changelog, unaligned=unaligned)
    job = side_by_side(left, right, first, second)
    run_for(job, objects, seconds, chosen)
    run(job, objects, chosen, seed=2)
    assert_counted((left, first), (right, second))
    assert {*first.commits.values(), *second.commits.values()} <= {1, 2}


class Refusing(Outside):
    """Its system goes away at the first commit."""

    down = True

    def open(self, context: SinkContext) -> SinkWriter:
        writer = super().open(context)
        commit = writer.commit

        def commit_or_not(transaction: bytes) -> None:
            if self.down:
                raise ConnectionError("gone")
            commit(transaction)

        writer.commit = commit_or_not  # type: ignore[method-assign]
        return writer


def test_the_last_records_are_committed_after_a_crash_between_checkpoint_and_commit() -> None:
    left, right, first, second, objects = short(2), long(2), Refusing(), Outside(), MemoryStore()
    job = side_by_side(left, right, first, second)
    with pytest.raises(UserFunctionError, match="gone"):
        run(job, objects, settings())
    (last, *_) = reversed(checkpoints(objects))
    sink = operator(last, "left-out")
    assert fully_finished(sink) and any(subtask.transactions for subtask in sink.subtasks)
    assert first.records == []
    first.down, opened = False, left.opened
    run(job, objects, settings(), seed=2)
    assert left.opened == opened
    assert_counted((left, first), (right, second))
    assert {*first.commits.values()} == {1}


def stop_when_a_part_has_ended(
    job: Job, objects: ObjectStore, kind: Any = "native", *, drain: bool = False
) -> Savepoint:
    """Stop with a savepoint once a subtask of the left source has exited."""

    async def act(runner: JobRunner) -> Savepoint:
        while not exited(runner, "left"):
            await runner.effects.clock.sleep(0.2)
        if isinstance(objects, SteerableStore):
            objects.fail(Failure("create", "checkpoints/"))
            with pytest.raises(SavepointFailedError, match="injected failure"):
                await runner.stop("first", kind)
        return await runner.stop("halt", kind, drain=drain)

    return acted_on(job, objects, act, at=0, settings=settings(parallelism=3))[1]


@pytest.mark.usefixtures("workers")
@one_by_one(
    kind=["native", "canonical"], elsewhere={"own": False, "other": True}, parallelism=[3, 2]
)
def test_a_job_goes_on_from_a_savepoint_of_a_part(
    kind: Any, elsewhere: bool, parallelism: int
) -> None:
    left, right, first, second = uneven(5), long(2), Outside(), Outside()
    old = MemoryStore("memory://old")
    stop_when_a_part_has_ended(side_by_side(left, right, first, second), old, kind)
    (last,) = checkpoints(old)[-1:]
    assert partially_finished(operator(last, "left")) and not last.final
    new = MemoryStore("memory://new") if elsewhere else old
    origin = RestoreFrom("halt", old) if elsewhere else RestoreFrom("halt")
    job = side_by_side(left, right, first, second)
    runner = JobRunner(job, new, settings(parallelism=parallelism), effects(2), restore_from=origin)
    asyncio.run(runner.run())
    assert_counted((left, first), (right, second))


@pytest.mark.usefixtures("workers")
@pytest.mark.parametrize("kind", ["native", "canonical"])
def test_after_a_savepoint_that_failed_another_one_stops_the_job(kind: Any) -> None:
    left, right, first, second = uneven(5), long(2), Outside(), Outside()
    job, store = side_by_side(left, right, first, second), MemoryStore()
    stop_when_a_part_has_ended(job, SteerableStore(store), kind)
    names = [each.name for each in checkpoints(store) if isinstance(each, Savepoint)]
    assert names == ["halt"]
    run(side_by_side(left, right, first, second), store, settings(), seed=2)
    assert_counted((left, first), (right, second))


@pytest.mark.usefixtures("workers")
def test_a_drain_ends_what_has_not_ended_yet() -> None:
    first, second, store = Outside(), Outside(), MemoryStore()
    job = side_by_side(uneven(5), long(2), first, second)
    assert stop_when_a_part_has_ended(job, store, drain=True).final
    counted = sorted(first.records + second.records)
    assert 0 < sum(n for _, n in counted) < len(uneven(5).records + long(2).records)
    again = run(side_by_side(uneven(5), long(2), first, second), store, settings())
    assert again.already_complete
    assert sorted(first.records + second.records) == counted
