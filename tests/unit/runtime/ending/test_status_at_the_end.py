"""What a status says of a job of which a part has ended, and of one that has ended as a whole."""

import asyncio
from collections.abc import Callable
from typing import Any

from tests.support.faults import SteerableStore
from tests.support.pipelines import Outside, Portions, config, effects
from tests.unit.runtime.ending.jobs import long, run_until, settings, uneven
from tidelog import Job, JobRunner
from tidelog.ids import SubtaskId
from tidelog.runtime.status.observe import status_of
from tidelog.runtime.status.status import JobStatus
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore

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
