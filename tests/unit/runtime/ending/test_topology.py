"""A job in which a finished operator would have to handle records again is refused."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from tests.support.pipelines import Outside, config, effects, run
from tests.support.pressure import checkpoints
from tests.unit.runtime.ending.jobs import long, operator, run_for, settings, short
from tidelog import Job, JobRunner, RestoreError, Stream
from tidelog.checkpoint.finished import fully_finished
from tidelog.checkpoint.manifest import OperatorState, SubtaskState
from tidelog.ids import SeqNo
from tidelog.runtime.restore.fit import check_finished
from tidelog.runtime.subtasks.vertices import compile_job
from tidelog.storage.memory import MemoryStore


def finished(name: str, *chain: str, known: bool = True) -> OperatorState:
    mark = SubtaskState(0, 0, 7, SeqNo(0), "memory", finished=True)
    return OperatorState(name, 8, (), (mark,), chain if known else None)


def check(job: Job, *operators: OperatorState) -> None:
    check_finished(compile_job(job, 1), {each.id: each for each in operators})


def counted(stream: Stream) -> Stream:
    return stream.key_by(lambda w: w).aggregate(lambda _: 1, lambda a, b: a + b, name="count")


def orders() -> Job:
    """source+parse, count+sink."""
    job = Job("orders")
    counted(job.source(short()).map(str, name="parse")).sink(Outside())
    return job


def between(source: Stream) -> Stream:
    return source.map(str, name="parse").rebalance().filter(bool, name="paid")


def chained(source: Stream) -> Stream:
    return source.filter(bool, name="paid").map(str, name="parse")


def one_more_input(source: Stream) -> Stream:
    late = source._job.source(long(), name="late")
    return source.map(str, name="parse").union(late)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (between, "'paid' lies in front of operator 'count'"),
        (chained, "'paid' is chained to operator 'source'"),
        (one_more_input, "'late' lies in front of operator 'count'"),
    ],
)
def test_what_would_send_records_to_a_finished_operator_is_refused(
    build: Callable[[Stream], Stream], reason: str
) -> None:
    job = Job("orders")
    counted(build(job.source(short()))).sink(Outside())
    with pytest.raises(RestoreError, match=reason):
        check(job, finished("source", "parse"), finished("count", "sink"))


def pair(*, second: bool, between: bool = False) -> tuple[Job, Outside, Outside]:
    """A short and a long pipeline; the short one with a branch, or an operator in its way."""
    job, sinks = Job("pair"), (Outside(), Outside())
    left = job.source(short(2), name="left")
    if second:
        left.rebalance().map(lambda w: w, name="extra").sink(sinks[0], name="extra-sink")
    stream = left.rebalance().filter(bool, name="new") if between else left
    stream.key_by(lambda w: w).aggregate(lambda _: 1, lambda a, b: a + b, name="left-count").sink(
        Outside(), name="left-sink"
    )
    right = job.source(long(2), name="right").key_by(lambda w: w)
    right.aggregate(lambda _: 1, lambda a, b: a + b, name="right-count").sink(
        sinks[1], name="right-sink"
    )
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
        asyncio.run(JobRunner(job, objects, config(), effects()).run())
    assert objects._objects == before
