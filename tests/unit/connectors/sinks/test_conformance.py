"""What every sink that is exactly once does, by what readers see and what lies hidden."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.test_rescaled_jobs import Breaking
from tests.support.depth import more_in_depth, one_by_one
from tests.support.pipelines import config, run
from tests.unit.connectors.sinks import job
from tests.unit.connectors.sinks.job import STEPS, SinkJob, context, copying
from tests.unit.connectors.sinks.outputs import KINDS, Output, output
from tidelog import ConfigError, Job, RestoreError, SinkContext, UserFunctionError
from tidelog.ids import CheckpointId
from tidelog.storage.memory import MemoryStore

EXAMPLES = {
    "files": 100,
    "sqlite": 100,
    "postgres": 20,
    "iceberg": more_in_depth(3, 40),
    "kafka": 20,
}


@pytest.fixture(params=KINDS)
def out(request: pytest.FixtureRequest) -> Output:
    return output(request.param, request)


pre_committed = partial(job.pre_committed, usual=[(1,), (2,)])


@pytest.mark.parametrize("kind", KINDS)
def test_no_record_is_seen_twice_or_missing_whatever_crashes(
    kind: str, request: pytest.FixtureRequest
) -> None:
    numbers = count()

    @settings(max_examples=EXAMPLES[kind], deadline=None)
    @given(st.lists(st.sampled_from(STEPS), max_size=20))
    def crashed(steps: list[str]) -> None:
        # Every example is a job of its own, with an output of its own.
        out = output(kind, request, next(numbers))
        running = SinkJob(out.sink, out.shown)
        running.run([*steps, "crash"])
        assert out.hidden() == 0

    crashed()


def test_records_are_hidden_until_a_commit_that_any_subtask_can_repeat(out: Output) -> None:
    writer: Any = out.sink().open(context(subtask=3))
    writer.recover([])
    writer.write([])
    assert writer.pre_commit(CheckpointId(1)) is None
    transaction = pre_committed(writer, 2)
    assert (out.shown(), out.hidden() > 0) == ([], True)
    for _ in range(2):
        writer.commit(transaction)
        assert (out.shown(), out.hidden()) == ([1, 2], 0)
    writer.close()
    out.sink().open(context(generation=2)).recover([transaction, transaction])
    assert out.shown() == [1, 2]


def test_what_a_subtask_left_that_is_no_more_is_committed_or_removed_by_its_successor(
    out: Output,
) -> None:
    """Subtask 3 of 4 has one transaction in the checkpoint and one that is not; 1 of 2 follows."""
    writer: Any = out.sink().open(context(subtask=3))
    writer.recover([])
    tokens = [pre_committed(writer, number, (number,)) for number in (1, 2)]
    hidden = out.hidden()
    for subtask in (0, 1):
        heir = SinkContext("job", "sink", subtask, 2, context(2).generation, "b")
        out.sink().open(heir).recover([token for token in tokens[:1] if heir.recovers_for(3)])
        if subtask == 0:
            assert (out.shown(), out.hidden()) == ([], hidden), "not its business"
    assert (out.shown(), out.hidden()) == ([1], 0)


def test_a_transaction_of_another_kind_of_sink_fails_the_restore(out: Output) -> None:
    with pytest.raises(RestoreError, match="a transaction of sink '"):
        out.sink().open(context()).recover([b"\x01"])


@pytest.mark.parametrize("kind", KINDS[:3])
def test_concurrent_subtasks_commit_all_their_rows(
    kind: str, request: pytest.FixtureRequest
) -> None:
    out = output(kind, request)

    def work(subtask: int) -> None:
        writer: Any = out.sink().open(context(subtask=subtask))
        writer.recover([])
        for checkpoint in range(5):
            first = subtask * 100 + checkpoint * 10
            numbers = [(n,) for n in range(first, first + 10)]
            writer.commit(pre_committed(writer, checkpoint, *numbers))
        writer.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert sorted(out.shown()) == [subtask * 100 + n for subtask in range(4) for n in range(50)]


def test_a_job_that_begins_in_another_store_adds_nothing_to_its_output(out: Output) -> None:
    run(copying([(1,), (2,)], out.sink()), MemoryStore())
    with pytest.raises(ConfigError, match="where a job begins: its output would be added"):
        run(copying([(1,), (2,)], out.sink()), MemoryStore())
    assert out.shown() == [1, 2]


@one_by_one(kind=KINDS, shapes=[[2, 5, 3], [7, 2, 1], [1, 4]])
def test_an_output_holds_every_record_once_whatever_the_parallelism(
    kind: str, shapes: list[int], request: pytest.FixtureRequest
) -> None:
    out, source, store = output(kind, request), Breaking(3, "a"), MemoryStore()
    place = {record: n for n, record in enumerate(source.records)}
    for number, parallelism in enumerate(shapes):
        last = number == len(shapes) - 1
        source.left = None if last else 6
        numbers = Job("numbers")
        copied = numbers.source(source).rebalance().map(lambda record: (place[tuple(record)],))
        copied.sink(out.sink())
        try:
            run(numbers, store, config(parallelism=parallelism), seed=number)
        except UserFunctionError:
            assert not last
    assert Counter(out.shown()) == Counter(range(len(source.records)))
    assert out.hidden() == 0
