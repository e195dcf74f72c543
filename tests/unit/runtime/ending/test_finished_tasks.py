"""Checkpoints go on after some tasks finished, and a restart runs those tasks no more.

Who runs again in another shape of an operator of which a part had finished.
"""

from collections import Counter
from itertools import pairwise

import msgspec
import pytest

from tests.support.depth import more_in_depth, one_by_one
from tests.support.pipelines import Outside, config, run
from tests.unit.runtime.ending.jobs import (
    checkpoints,
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
    Checkpoint,
    JobRunner,
    SinkContext,
    SinkWriter,
    UnalignedConfig,
    UserFunctionError,
)
from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.finished import exited_state, fully_finished, partially_finished
from tidelog.checkpoint.manifest import (
    Author,
    MaterializationRef,
    OperatorState,
    StateInfo,
    SubtaskState,
)
from tidelog.ids import CheckpointId, Generation, KeyGroup, MaterializationId, SeqNo, Slot
from tidelog.runtime.config import UnalignedMode
from tidelog.runtime.restore.choose import Resumption
from tidelog.runtime.restore.fit import fit_checkpoint
from tidelog.storage.memory import MemoryStore


def store() -> MemoryStore:
    return MemoryStore("memory://ending")


def has_state(operator: OperatorState) -> list[bool]:
    return [subtask.seqno > subtask.start for subtask in operator.subtasks]


@one_by_one(changelog={"log": True, "tables": False}, parallelism=[1, 2, 3, 4, 5])
def test_a_short_source_finishes_and_checkpoints_of_the_rest_go_on(
    parallelism: int, changelog: bool
) -> None:
    left, right, sink, objects = short(3), long(3), Outside(), store()
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
    source, sink, objects = uneven(4), Outside(), store()
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


def test_positions_that_stay_name_no_log_that_their_table_covers() -> None:
    def logged(first: int, end: int) -> LogRange:
        return LogRange(
            "segments/1", 100 * first, 100, SeqNo(first), SeqNo(end), KeyGroup(0), KeyGroup(7)
        )

    table = MaterializationRef(MaterializationId(3), "materializations/3", 50, SeqNo(17), 50)
    log = (logged(15, 16), logged(16, 17), logged(17, 17), logged(17, 19))
    state = SubtaskState(
        index=0,
        first_key_group=KeyGroup(0),
        last_key_group=KeyGroup(7),
        seqno=SeqNo(19),
        table="memory",
        materialization=table,
        log=log,
        finished=True,
    )
    assert exited_state(state, positions=True).log == log[1:], "metadata may be at the end of one"
    spanning = msgspec.structs.replace(state, log=(logged(15, 19),))
    assert exited_state(spanning, positions=True) == spanning


def test_a_finished_task_frees_what_it_held_while_others_run() -> None:
    seen: list[JobRunner] = []

    def look(runner: JobRunner) -> None:
        assert runner.incarnation is not None
        incarnation = runner.incarnation
        seen.append(runner)
        gone = {task.id.operator for task in incarnation.tasks if task.exited}
        assert gone == {"left", "left-count", "left-out"}
        subtasks = incarnation.states.subtasks
        assert {task.operator for task, subtask in subtasks.items() if subtask.released} == gone
        materialized = {m.snapshots.operator for m in incarnation.states.materializers}
        assert materialized == {"right", "right-count", "right-out"}
        assert not any("left" in name for name in incarnation.live_objects())

    first, second = Outside(), Outside()
    job = side_by_side(short(2), long(2), first, second)
    run_for(job, store(), 8.0, settings(parallelism=1, table="rocksdb"), look=look)
    assert seen


def test_the_pipeline_that_ends_first_commits_its_last_records_while_the_other_runs() -> None:
    left, right, first, second = short(2), long(2), Outside(), Outside()

    def look(runner: JobRunner) -> None:
        assert sorted(first.records) == sorted(Counter(left.records).items())
        assert first.prepared == {}
        assert second.records == []

    run_for(side_by_side(left, right, first, second), store(), 8.0, look=look)


@one_by_one(
    changelog={"log": True, "tables": False},
    mode=["off", "always"],
    seconds=[1.5, 3.1, 4.2, 6.3, 8.4, 11.7],
    parallelism=[1, 3],
)
def test_a_crash_at_any_time_reads_nothing_twice(
    parallelism: int, seconds: float, mode: UnalignedMode, changelog: bool
) -> None:
    left, right, first, second, objects = uneven(4), long(2), Outside(), Outside(), store()
    unaligned = UnalignedConfig(mode)
    chosen = settings(parallelism=parallelism, changelog=changelog, unaligned=unaligned)
    job = side_by_side(left, right, first, second)
    run_for(job, objects, seconds, chosen)
    run(job, objects, chosen, seed=2)
    assert sorted(first.records) == sorted(Counter(left.records).items())
    assert sorted(second.records) == sorted(Counter(right.records).items())
    assert {*first.commits.values(), *second.commits.values()} <= {1, 2}
    assert first.prepared == second.prepared == {}


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
    left, right, first, second, objects = short(2), long(2), Refusing(), Outside(), store()
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
    assert sorted(first.records) == sorted(Counter(left.records).items())
    assert sorted(second.records) == sorted(Counter(right.records).items())
    assert {*first.commits.values()} == {1}


def restored(name: str, *kinds: str) -> Checkpoint:
    """An operator with one finished subtask and one that runs."""
    states = tuple(StateInfo(n, kind, kind, ("msgpack",)) for n, kind in enumerate(kinds))
    subtasks = (
        SubtaskState(0, 0, 3, SeqNo(5), "memory", inline=(b"x",), finished=True),
        SubtaskState(1, 4, 7, SeqNo(9), "memory", inline=(b"y",), watermark=7),
    )
    return Checkpoint(
        *(Slot(3), Author(Generation(0), "a"), CheckpointId(1), 0, "merged"),
        (OperatorState(name, 8, states, subtasks),),
    )


def matched(name: str, parallelism: int, *kinds: str) -> list[tuple[bool, int]]:
    """(finished, parts of older subtasks that it loads) of every new subtask."""
    seen, job = restored(name, *kinds), merged(short(), short(), Outside())
    plan = fit_checkpoint(job, Resumption(seen), seen, config(parallelism=parallelism))
    return [(s.finished, len(s.inherited)) for s in plan.operators[name].subtasks]


def test_in_the_same_shape_what_finished_stays_finished() -> None:
    assert matched("aggregate", 2, "aggregate") == [(True, 0), (False, 0)]


@pytest.mark.parametrize("parallelism", [1, 3, 4])
def test_in_another_shape_all_subtasks_take_records_and_none_of_what_had_been_emitted(
    parallelism: int,
) -> None:
    found = matched("aggregate", parallelism, "aggregate")
    assert not any(finished for finished, _ in found)
    assert sum(parts for _, parts in found) == {1: 1, 3: 2, 4: 2}[parallelism]


def test_of_a_source_what_was_read_is_kept_and_its_heirs_stay_finished() -> None:
    assert matched("left", 4, "splits") == [(True, 1), (True, 1), (False, 1), (False, 1)]
    assert matched("left", 1, "splits") == [(False, 2)]
