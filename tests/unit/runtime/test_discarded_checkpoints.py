"""A checkpoint counts as a whole or not at all: one part that fails or is late discards it."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.faults import SteerableStore
from tests.support.harness import assert_nothing_is_left_over
from tests.support.pipelines import (
    Outside,
    Portions,
    acted_on,
    completed,
    config,
    copy,
    effects,
    run,
    running,
    word_count,
    words,
)
from tests.support.pressure import checkpoints
from tidelog import CheckpointConfig, JobRunner, SinkContext, SinkWriter
from tidelog.errors import CheckpointFailedError, StoreUnreachableError
from tidelog.ids import CheckpointId, Slot
from tidelog.materialize.table_snapshot import TableSnapshots
from tidelog.runtime.checkpoints.driver import CheckpointDriver
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore

NUMBERS = Portions({f"split-{s}": list(range(s, 150, 3)) for s in range(3)}, portion=1, pause=0.1)
BAD = CheckpointId(4)


class Failing(Outside):
    """Subtask 1 cannot pre-commit the given checkpoints."""

    def __init__(self, bad: Sequence[int]) -> None:
        super().__init__()
        self.bad = bad
        self.order: list[tuple[int, bytes]] = []
        """(checkpoints completed by then, transaction) of every commit."""
        self.completed: Callable[[], int] = lambda: 0

    def open(self, context: SinkContext) -> SinkWriter:
        writer = super().open(context)
        pre_commit, commit = writer.pre_commit, writer.commit

        def pre_commit_or_fail(checkpoint: CheckpointId) -> bytes | None:
            if context.subtask == 1 and checkpoint in self.bad:
                raise StoreUnreachableError("the sink", found="no connection", action="mend it")
            return pre_commit(checkpoint)

        def noted(transaction: bytes) -> None:
            self.order.append((self.completed(), transaction))
            commit(transaction)

        writer.pre_commit, writer.commit = pre_commit_or_fail, noted  # type: ignore[method-assign]
        return writer


def test_one_subtask_that_fails_discards_the_checkpoint_of_all_and_is_counted() -> None:
    store, sink = MemoryStore("memory://one"), Failing([BAD])
    runner = JobRunner(copy(NUMBERS, sink), store, config(retain=50), effects())
    sink.completed = lambda: completed(runner)
    asyncio.run(runner.run())

    driver = runner.incarnation.driver
    assert driver.metrics.failed == 1
    assert "no connection" in driver.metrics.last_failure
    assert driver.coordinator.consecutive_failures == 0, "the next one forgave it"
    ids = [checkpoint.checkpoint_id for checkpoint in checkpoints(store)]
    assert BAD not in ids and ids[:4] == [1, 2, 3, 5]
    # Subtask 0 had pre-committed; it commits with checkpoint 5, the fourth that completed.
    commits = {transaction.rpartition(b"-")[2]: done for done, transaction in sink.order}
    assert (commits[b"3"], commits[b"4"], commits[b"5"]) == (3, 4, 4)
    assert sorted(sink.records) == list(range(150))
    assert_nothing_is_left_over(store)


def test_failures_in_a_row_are_counted_and_one_more_than_tolerated_stops_the_job() -> None:
    store, sink = MemoryStore("memory://row"), Failing(range(2, 99))
    settings = config(checkpoint=CheckpointConfig(interval=1.0, timeout=60.0, tolerable_failures=2))
    runner = JobRunner(copy(NUMBERS, sink), store, settings, effects())
    with pytest.raises(CheckpointFailedError, match="3 checkpoints in a row failed"):
        asyncio.run(runner.run())
    assert runner.incarnation.driver.metrics.failed == 3
    # What was not committed comes again, and nothing else does.
    sink.bad = ()
    run(copy(NUMBERS, sink), store, seed=2)
    assert sorted(sink.records) == list(range(150))
    assert sink.prepared == {}


def test_a_timeout_discards_the_checkpoint_and_all_its_state() -> None:
    inner, sink, source = MemoryStore("memory://late"), Outside(), words(2, 40)
    store = SteerableStore(inner)
    settings = config(retain=50, checkpoint=CheckpointConfig(interval=1.0, timeout=5.0))

    async def act(runner: JobRunner) -> CheckpointDriver:
        driver, sleep = runner.incarnation.driver, runner.effects.clock.sleep
        while not driver.metrics.completed:
            await sleep(0.05)
        store.hold(object_names.SEGMENTS)
        while not driver.metrics.failed:
            await sleep(0.05)
        assert driver.coordinator.consecutive_failures == 1
        store.release()
        return driver

    _, driver = acted_on(word_count(source, sink), store, act, at=0, settings=settings)
    metrics = driver.metrics
    assert metrics.last_failure.startswith("timed out after 5.0 s")
    ids = [checkpoint.checkpoint_id for checkpoint in checkpoints(inner)]
    # The last but one was that of the state before the end, which is part of the last one.
    late = set(range(1, max(ids) - 1)) - set(ids)
    assert len(late) == metrics.failed
    assert sorted(sink.records) == sorted(Counter(source.records).items())
    assert_nothing_is_left_over(inner)


async def test_nothing_stays_on_disk_of_a_snapshot_whose_checkpoint_was_given_up_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, prepare, prepared = effects(), TableSnapshots.prepare, set[str]()

    async def slow_at_first(snapshots: TableSnapshots) -> None:
        task = f"{snapshots.operator}-{snapshots.subtask}"
        await world.clock.sleep(0.0 if task in prepared else 10.0)
        prepared.add(task)
        await prepare(snapshots)

    monkeypatch.setattr(TableSnapshots, "prepare", slow_at_first)
    late = CheckpointConfig(interval=1.0, timeout=5.0)
    settings = config(changelog=False, table="rocksdb", work_dir=tmp_path, checkpoint=late)
    runner = JobRunner(word_count(words(2, 60), Outside()), MemoryStore(), settings, world)
    async with running(runner):
        while not completed(runner):
            await world.clock.sleep(0.05)
        assert runner.incarnation.driver.metrics.failed
        assert not list(tmp_path.rglob("snapshot-*"))


def test_the_barrier_goes_on_before_the_snapshot_is_taken() -> None:
    store, sink = MemoryStore("memory://order"), Outside()
    runner = JobRunner(word_count(words(), sink), store, config(), effects())
    steps: list[tuple[str, int, str]] = []

    def watch() -> None:
        for task in runner.incarnation.tasks:
            _watch(str(task.id), task.parts, steps)

    asyncio.run(runner.run(watch))
    tasks = {task for task, _, _ in steps}
    assert len(tasks) == 4, "two sources and two consumers"
    assert len(steps) > 2 * 2 * len(tasks)
    for task in tasks:
        of_task = [(checkpoint, step) for who, checkpoint, step in steps if who == task]
        ids = sorted({checkpoint for checkpoint, _ in of_task})
        assert of_task == [(n, step) for n in ids for step in ("barrier", "snapshot")]


def _watch(task: str, parts: Any, steps: list[tuple[str, int, str]]) -> None:
    forward, snapshotter = parts.output.forward, parts.snapshotter

    def forwarded(barrier: Any, in_flight: Any) -> None:
        steps.append((task, barrier.checkpoint, "barrier"))
        forward(barrier, in_flight)

    class Watched:
        def __getattr__(self, name: str) -> Any:
            return getattr(snapshotter, name)

        async def capture(self, checkpoint: CheckpointId, position: Any) -> Any:
            steps.append((task, checkpoint, "snapshot"))
            return await snapshotter.capture(checkpoint, position)

    parts.output.forward = forwarded
    parts.snapshotter = Watched()


def test_a_job_goes_on_while_its_snapshot_is_uploaded_which_stays_what_it_was() -> None:
    """By reference, then in the background: what changes meanwhile is in the next checkpoint."""
    inner, source = MemoryStore("memory://behind"), words(2, 60)
    store = SteerableStore(inner)
    store.hold(object_names.SEGMENTS)

    async def act(runner: JobRunner) -> tuple[Slot, int, int]:
        sleep = runner.effects.clock.sleep
        while not store.waiting:
            await sleep(0.05)
        before = records_read(runner)
        await sleep(10.0)
        meanwhile = records_read(runner)
        store.release()
        assert not completed(runner)
        return runner.incarnation.driver.next_slot, before, meanwhile

    job, kept = word_count(source, Outside()), config(retain=50)
    _, (slot, before, meanwhile) = acted_on(job, store, act, at=0, settings=kept)
    assert meanwhile > before + 20
    # Offsets and counts of that checkpoint belong together: resuming from it counts all once.
    resumed = Outside()
    job = word_count(source, resumed)
    asyncio.run(JobRunner(job, inner, config(), effects(2), restore_checkpoint=slot).run())
    assert sorted(resumed.records) == sorted(Counter(source.records).items())


def records_read(runner: JobRunner) -> int:
    return sum(task.records_in for task in runner.incarnation.tasks)
