"""Operators that the job no longer has: gone without a word, or only when the user says so."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.support.depth import one_by_one
from tests.support.pipelines import Outside, Portions, acted_on, config, effects, words
from tests.support.pressure import checkpoints
from tests.unit.runtime.test_changed_types import run
from tidelog import RestoreError, Sliding, StateSchemaError, TidelogError, status_of
from tidelog.storage.memory import MemoryStore

BUILD = Callable[[tidelog.Stream, Outside], None]


SOURCE = words(length=60)
WORDS = Counter(SOURCE.records)


def job(build: BUILD, sink: Outside, **options: Any) -> tidelog.Job:
    made = tidelog.Job("job")
    build(made.source(SOURCE, **options), sink)
    return made


def count(stream: tidelog.Stream, sink: Outside, name: str = "count", **options: Any) -> None:
    stream.key_by(str).count(name=name, **options).sink(sink, name="sink")


total = partial(count, name="total")


def stopped(made: tidelog.Job, store: MemoryStore) -> None:
    """Run the job until the middle of its data."""
    acted_on(made, store, at=5.2, crash=True)
    assert checkpoints(store)


def spread_map(stream: tidelog.Stream, sink: Outside, name: str = "one") -> None:
    count(stream.rebalance().map(str, name=name), sink)


def two_branches(stream: tidelog.Stream, sink: Outside) -> None:
    stream.map(str, name="shown").filter(bool).sink(
        tidelog.ForeachSink(lambda _: None), name="show"
    )
    count(stream, sink)


def without_map(stream: tidelog.Stream, sink: Outside) -> None:
    count(stream.rebalance(), sink)


CHANGES: dict[str, tuple[BUILD, BUILD]] = {
    "renamed": (spread_map, partial(spread_map, name="other")),
    "removed": (spread_map, without_map),
    "added": (without_map, spread_map),
    "branch removed": (two_branches, count),
    "branch added": (count, two_branches),
}


@one_by_one(change=CHANGES, parallelism=[1, 2])
def test_an_operator_without_state_comes_and_goes_as_it_likes(
    change: tuple[BUILD, BUILD], parallelism: int
) -> None:
    store, sink, (before, after) = MemoryStore(), Outside(), change
    stopped(job(before, sink), store)
    runner = tidelog.JobRunner(job(after, sink), store, config(parallelism=parallelism), effects())
    asyncio.run(runner.run())
    assert dict(sink.records) == WORDS
    assert runner.incarnation.plan.dropped == ()


def test_an_operator_with_state_goes_only_when_it_is_named_and_then_it_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, sink = MemoryStore(), Outside()
    stopped(job(count, sink), store)
    changed = job(total, sink)
    before = dict(store._objects)
    with pytest.raises(RestoreError) as refused:
        run(changed, store)
    told = str(refused.value)
    assert "operator 'count'" in told and "state 'aggregate'" in told
    assert "--allow-non-restored-state count (JobConfig.allow_non_restored_state)" in told
    with pytest.raises(RestoreError, match="operator 'count'"):
        run(changed, store, allow_non_restored_state=("total", "sink"))
    assert store._objects == before, "the running job is not fenced"
    runner = tidelog.JobRunner(
        changed, store, config(allow_non_restored_state=("count",)), effects()
    )
    with caplog.at_level(logging.WARNING):
        asyncio.run(runner.run())
    assert status_of(runner).dropped_state == ("state 'aggregate' of operator 'count'",)
    assert "dropped, as allowed: state 'aggregate' of operator 'count'" in caplog.text
    # The new operator counts what comes behind the checkpoint, and nothing from before.
    assert 0 < sum(dict(sink.records).values()) < WORDS.total()
    assert {operator.id for operator in checkpoints(store)[-1].operators} == {"source", "total"}


def test_a_renamed_source_would_read_everything_again_and_is_refused() -> None:
    store, sink = MemoryStore(), Outside()
    stopped(job(count, sink), store)
    changed = job(count, sink, name="words")
    with pytest.raises(
        RestoreError, match=r"'source'.*positions of its splits.*--allow-non-restored"
    ):
        run(changed, store)
    run(changed, store, allow_non_restored_state=("source",))
    again = dict(sink.records)
    assert all(again[word] > n for word, n in WORDS.items())


def plain(stream: tidelog.Stream, sink: Any) -> None:
    stream.map(lambda w: tidelog.Row(word=w), name="row").sink(sink, name="sink")


def uncommitted(sink: Outside, build: BUILD = plain) -> MemoryStore:
    """A store whose newest checkpoint holds output that its sink had pre-committed."""
    store, rarely = MemoryStore(), config(checkpoint=tidelog.CheckpointConfig(interval=20.0))
    savepoint = lambda runner: runner.savepoint("halfway")  # noqa: E731
    acted_on(job(build, sink), store, savepoint, at=5.2, settings=rarely, crash=True)
    return store


def test_a_sink_with_transactions_is_not_removed_replaced_or_left_without_leave(
    tmp_path: Path,
) -> None:
    sink = Outside()
    store = uncommitted(sink)
    newest = checkpoints(store)[-1]
    held = sum(len(state.transactions) for _, state in newest.subtasks())
    assert held
    assert (newest.operators[-1].sink, newest.operators[-1].sink_types) == ("sink", ("Outside",))
    before = dict(store._objects)
    changes: list[tidelog.Job] = []
    for put in (tidelog.FileSink(tmp_path / "out"), tidelog.ForeachSink(lambda _: None)):
        made = tidelog.Job("job")
        plain(made.source(SOURCE), put)
        changes.append(made)
    for changed in changes:
        with pytest.raises(RestoreError, match=f"{held} sink transactions") as refused:
            run(changed, store)
        assert "stop it with a savepoint" in str(refused.value)
        assert "--allow-non-restored-state" in str(refused.value)
        assert store._objects == before
    written = {word for records in sink.committed.values() for (word,) in records}
    assert written
    runner = tidelog.JobRunner(
        changes[0], store, config(allow_non_restored_state=("sink",)), effects()
    )
    asyncio.run(runner.run())
    assert runner.incarnation.plan.dropped == (f"{held} sink transactions of sink 'sink'",)


@pytest.mark.parametrize("place", ["same", "other"])
def test_a_renamed_sink_of_the_same_kind_commits_what_its_predecessor_had_written(
    place: str,
) -> None:
    sink = Outside()
    store = uncommitted(sink)
    made = tidelog.Job("job")
    stream = made.source(SOURCE)
    if place == "other":
        stream = stream.key_by(str)
    stream.map(lambda w: tidelog.Row(word=w), name="row").sink(sink, name="out")
    run(made, store)
    assert Counter(row.word for row in sink.records) == WORDS


def test_a_sink_that_is_named_is_dropped_and_not_taken_for_one_in_its_place(tmp_path: Path) -> None:
    store = uncommitted(tidelog.FileSink(tmp_path / "before"))
    made, files = tidelog.Job("job"), tidelog.FileSink(tmp_path / "after")
    made.source(SOURCE).map(lambda w: tidelog.Row(word=w), name="row").sink(files, name="new")
    with pytest.raises(TidelogError, match=r"output file .*after.*found neither"):
        run(made, store)
    runner = tidelog.JobRunner(made, store, config(allow_non_restored_state=("sink",)), effects())
    asyncio.run(runner.run())
    [dropped] = runner.incarnation.plan.dropped
    assert dropped.endswith("sink transactions of sink 'sink'")


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_sink_that_stays_commits_what_it_had_written_for_an_operator_that_goes(
    parallelism: int,
) -> None:
    def only_shown(stream: tidelog.Stream, sink: Outside) -> None:
        stream.filter(lambda _: False, name="none").sink(sink, name="sink")

    for after in (total, only_shown):
        sink = Outside()
        store = uncommitted(sink, partial(count, emit_updates=True))
        held = dict(sink.committed)
        # The process died before it committed the savepoint.
        sink.prepared, sink.committed = dict(held), {}
        settings = config(parallelism=parallelism, allow_non_restored_state=("count",))
        runner = tidelog.JobRunner(job(after, sink), store, settings, effects())
        asyncio.run(runner.run())
        assert held and held.items() <= sink.committed.items()
        assert runner.incarnation.plan.dropped == ("state 'aggregate' of operator 'count'",)


class Counts(tidelog.StatefulProcessor):
    """Counts in a state of a given name."""

    def __init__(self, *states: str) -> None:
        self.states = states

    def init(self, handle: tidelog.StatefulProcessorHandle) -> None:
        self.handles = [handle.getValueState(name, "n long") for name in self.states]

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        for _ in rows:
            for state in self.handles:
                state.update(((state.get() or (0,))[0] + 1,))
        return iter([(key[0], *(state.get()[0] for state in self.handles))])


def processed(*states: str, name: str = "process") -> BUILD:
    def build(stream: tidelog.Stream, sink: Outside) -> None:
        keyed = stream.key_by(str)
        made = keyed.transform_with_state(
            lambda: Counts(*states), time_mode="processing", name=name
        )
        made.sink(sink, name="sink")

    return build


def test_what_a_renamed_processor_would_leave_behind_is_told_by_the_names_that_users_know() -> None:
    store, sink = MemoryStore(), Outside()
    stopped(job(processed("seen"), sink), store)
    with pytest.raises(RestoreError, match="holds its timers, state 'seen' of it"):
        run(job(processed("seen", name="renamed"), sink), store)


def test_a_renamed_state_of_a_processor_would_begin_empty_and_is_refused() -> None:
    store, sink = MemoryStore(), Outside()
    stopped(job(processed("seen"), sink), store)
    with pytest.raises(StateSchemaError) as refused:
        run(job(processed("count"), sink), store)
    told = str(refused.value)
    assert "states of operator 'process'; expected 'seen', as the checkpoint has it" in told
    assert "'count' instead" in told and "--allow-non-restored-state process/seen" in told
    run(job(processed("count"), sink), store, allow_non_restored_state=("process/seen",))
    newest = {record[0]: record[1] for record in sink.records}
    assert sum(newest.values()) < len(SOURCE.records)


def window(size_ms: int, slide_ms: int | None = None, *, keep: bool = False) -> BUILD:
    def build(stream: tidelog.Stream, sink: Outside) -> None:
        keyed = stream.event_time(lambda _: 5).key_by(str)
        windows = keyed.window(Sliding(size_ms, slide_ms or size_ms), name="count")
        made = windows.records(lambda *a: a[:2]) if keep else windows.count()
        made.sink(sink, name="sink")

    return build


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (window(2_000), "size 1000 ms, slide 1000 ms"),
        (window(1_000, 500), "slide 1000 ms"),
        (window(1_000, keep=True), "the kind was window-aggregate and is window-records"),
        (count, "expected 'windows', as the checkpoint has it"),
    ],
    ids=["size", "slide", "records", "aggregate"],
)
def test_other_windows_are_refused_before_the_running_job_is_fenced(
    changed: BUILD, reason: str
) -> None:
    store, sink = MemoryStore(), Outside()
    stopped(job(window(1_000), sink), store)
    before = dict(store._objects)
    with pytest.raises(StateSchemaError, match=reason):
        run(job(changed, sink), store)
    assert store._objects == before


def test_another_class_of_source_does_not_get_positions_that_it_cannot_read() -> None:
    """Both have a split "0" with a number as position: the second would begin in its middle."""
    store, sink = MemoryStore(), Outside()

    def counting(numbers: Any) -> tidelog.Job:
        made = tidelog.Job("job")
        count(made.source(numbers), sink)
        return made

    class Numbers(Portions):
        pass

    stopped(counting(Numbers({"0": list(range(100))})), store)
    before = dict(store._objects)
    other = tidelog.IterableSource([7] * 60)
    with pytest.raises(
        RestoreError, match=r"source 'source'.*positions.*found IterableSource, which"
    ):
        run(counting(other), store)
    assert store._objects == before
    # A subclass, or what it was derived from, goes on.
    stopped(counting(Portions({"0": list(range(100))})), store)
    run(counting(other), store, allow_non_restored_state=("source",))
    assert dict(sink.records)["7"] >= 60
