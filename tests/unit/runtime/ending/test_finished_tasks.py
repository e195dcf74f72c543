"""Checkpoints and savepoints of a job of which a part has ended: they go on, a restart runs
that part no more, nothing is read twice and nothing waits.

Whatever fails around the end of a job, or of a part of it, the output is right in the end; and a
job in which a finished operator would have to handle records again is refused.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.support.depth import more_in_depth, one_by_one
from tests.support.faults import Failure, Fault, FaultKind, SteerableStore
from tests.support.harness import assert_nothing_is_left_over
from tests.support.pipelines import Outside, acted_on, config, effects, run
from tests.support.pressure import checkpoints
from tests.unit.runtime.ending.jobs import (
    assert_counted,
    exited,
    long,
    merged,
    operator,
    run_for,
    run_until,
    settings,
    short,
    side_by_side,
    uneven,
)
from tests.unit.runtime.test_job_faults import faulty
from tidelog import (
    CheckpointConfig,
    CheckpointFailedError,
    Job,
    JobRunner,
    RestoreError,
    RestoreFrom,
    Savepoint,
    SavepointFailedError,
    SinkContext,
    SinkWriter,
    Stream,
    TidelogError,
    UnalignedConfig,
    UserFunctionError,
)
from tidelog.checkpoint import coordinator
from tidelog.checkpoint.coordinator import Plan, make_plan
from tidelog.checkpoint.finished import (
    exited_state,
    finished_operators,
    fully_finished,
    partially_finished,
)
from tidelog.checkpoint.manifest import OperatorState, SubtaskState
from tidelog.ids import SeqNo, SubtaskId
from tidelog.runtime.config import UnalignedMode
from tidelog.runtime.restore.fit import check_finished
from tidelog.runtime.subtasks.incarnation import LocalSubtasks
from tidelog.runtime.subtasks.vertices import compile_job
from tidelog.storage import object_names
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
        assert_counted((left, first), (right, second), at=nth)
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
    assert_counted((left, first), (right, second))


@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_finished_operators_are_skipped_at_any_parallelism(parallelism: int) -> None:
    left, right, first, second, objects = short(2), long(2), Outside(), Outside(), MemoryStore()
    job = side_by_side(left, right, first, second)
    run_for(job, objects, 8.0, settings(parallelism=2))
    assert fully_finished(operator(checkpoints(objects)[-1], "left"))
    opened, commits = left.opened, dict(first.commits)
    run(job, objects, settings(parallelism=parallelism), seed=2)
    assert (left.opened, dict(first.commits)) == (opened, commits)
    assert_counted((right, second))
    (last,) = checkpoints(objects)[-1:]
    assert len(operator(last, "left").subtasks) == parallelism and last.final


def test_a_task_that_finished_between_plan_and_trigger_costs_that_checkpoint_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Plan[SubtaskId]] = []

    def stale(predecessors: Any, exited: set[SubtaskId]) -> Plan[SubtaskId]:
        """As if nobody had exited, until two were declined."""
        plan = make_plan(predecessors, exited)
        if exited and len(made) < 2:
            made.append(plan)
            return Plan(make_plan(predecessors, set()).starts_at, plan.takes_part)
        return plan

    monkeypatch.setattr(coordinator, "make_plan", stale)
    left, right, first, second, objects = short(2), long(2), Outside(), Outside(), MemoryStore()
    runner = JobRunner(side_by_side(left, right, first, second), objects, settings(), effects())
    asyncio.run(runner.run())
    metrics = runner.incarnation.driver.metrics
    assert len(made) == metrics.failed == 2
    assert "finished before the barrier reached it" in metrics.last_failure
    assert_counted((left, first), (right, second))


def test_a_final_checkpoint_that_always_fails_ends_the_job_and_commits_nothing_of_it() -> None:
    left, first, inner = short(), Outside(), MemoryStore()
    chosen = config(checkpoint=CheckpointConfig(interval=50.0, tolerable_failures=2))
    # The start slot takes two: it is created, and proves that creating is exclusive.
    refused = [Fault(FaultKind.FAIL, "create", object_names.CHECKPOINTS, nth=n) for n in (3, 4, 5)]
    down = faulty(inner, *refused)
    job = side_by_side(left, short(), first, Outside())
    with pytest.raises(CheckpointFailedError, match="3 checkpoints in a row"):
        run(job, down, chosen)
    assert first.records == []
    run(job, inner, chosen, seed=2)
    assert_counted((left, first))


def test_the_final_checkpoint_comes_at_once_and_alone() -> None:
    """However long the interval: every task takes part in the one checkpoint there is."""
    left, right, first, second, objects = short(2), long(2), Outside(), Outside(), MemoryStore()
    chosen = settings(checkpoint=CheckpointConfig(interval=1e6, timeout=60.0))
    started = effects()
    runner = JobRunner(side_by_side(left, right, first, second), objects, chosen, started)
    asyncio.run(runner.run())
    (only,) = checkpoints(objects)
    assert only.final and all(fully_finished(each) for each in only.operators)
    assert all(any(s.seqno for s in operator(only, name).subtasks) for name in ("left", "right"))
    assert started.clock.monotonic() < 1000
    assert_counted((left, first), (right, second))


def finished(name: str, *chain: str) -> OperatorState:
    mark = SubtaskState(0, 0, 7, SeqNo(0), "memory", finished=True)
    return OperatorState(name, 8, (), (mark,), chain)


def one_more_input(source: Stream) -> Stream:
    late = source._job.source(long(), name="late")
    return source.map(str, name="parse").union(late)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (
            lambda source: source.map(str, name="parse").rebalance().filter(bool, name="paid"),
            "'paid' lies in front of operator 'count'",
        ),
        (
            lambda source: source.filter(bool, name="paid").map(str, name="parse"),
            "'paid' is chained to operator 'source'",
        ),
        (one_more_input, "'late' lies in front of operator 'count'"),
    ],
    ids=["between", "chained", "one more input"],
)
def test_what_would_send_records_to_a_finished_operator_is_refused(
    build: Callable[[Stream], Stream], reason: str
) -> None:
    """The job was source and parse, count and sink."""
    job, operators = Job("orders"), [finished("source", "parse"), finished("count", "sink")]
    build(job.source(short())).key_by(lambda w: w).count().sink(Outside())
    with pytest.raises(RestoreError, match=reason):
        check_finished(compile_job(job, 1), finished_operators(operators))


def pair(*, second: bool, between: bool = False) -> tuple[Job, Outside, Outside]:
    """A short and a long pipeline; the short one with a branch, or an operator in its way."""
    job, sinks = Job("pair"), (Outside(), Outside())
    left = job.source(short(2), name="left")
    if second:
        left.rebalance().map(lambda w: w, name="extra").sink(sinks[0], name="extra-sink")
    stream = left.rebalance().filter(bool, name="new") if between else left
    right = job.source(long(2), name="right")
    for name, each, sink in (("left", stream, Outside()), ("right", right, sinks[1])):
        counted = each.key_by(lambda w: w).count(name=f"{name}-count")
        counted.sink(sink, name=f"{name}-sink")
    return job, *sinks


def stored_with_left_finished() -> MemoryStore:
    objects = MemoryStore("memory://pair")
    run_for(pair(second=False)[0], objects, 8.0)
    assert fully_finished(operator(checkpoints(objects)[-1], "left-count"))
    return objects


def test_a_new_branch_behind_a_finished_source_takes_part_in_checkpoints_and_ends() -> None:
    """Nobody is left in front of it: the coordinator itself starts checkpoints there."""
    objects = stored_with_left_finished()
    before = len(checkpoints(objects))
    job, extra, rest = pair(second=True)
    run(job, objects, settings(), seed=2)
    assert extra.records == []
    assert dict(rest.records) == Counter(long(2).records)
    (last,) = checkpoints(objects)[-1:]
    assert last.final and len(checkpoints(objects)) > before + 3
    assert fully_finished(operator(last, "extra"))


def test_a_refused_job_fences_nobody_and_changes_nothing() -> None:
    objects = stored_with_left_finished()
    before = dict(objects._objects)
    job, _, _ = pair(second=False, between=True)
    with pytest.raises(RestoreError, match=r"(?s)'new' lies in front of.*'left-count'"):
        run(job, objects, config())
    assert objects._objects == before
