"""Savepoints of a job of which a part has ended: nothing is read twice, nothing is held back."""

import asyncio
from collections import Counter
from typing import Any

from tests.support.depth import one_by_one
from tests.support.pipelines import Outside, effects, run
from tests.unit.runtime.ending.jobs import (
    checkpoints,
    exited,
    long,
    operator,
    settings,
    side_by_side,
    uneven,
)
from tidelog.checkpoint.finished import partially_finished
from tidelog.runtime.graph import Job
from tidelog.runtime.restore.choose import RestoreFrom
from tidelog.runtime.runner import JobRunner
from tidelog.storage.memory import MemoryStore


def stop_when_a_part_has_ended(
    job: Job, objects: MemoryStore, kind: Any, *, parallelism: int = 3
) -> None:
    """Stop with a savepoint once a subtask of the left source has exited."""

    async def scenario() -> None:
        runner = JobRunner(job, objects, settings(parallelism=parallelism), effects())
        running = asyncio.ensure_future(runner.run())
        while not exited(runner, "left"):
            await runner.effects.clock.sleep(0.2)
        await runner.stop("halt", kind)
        await running

    asyncio.run(scenario())


@one_by_one(
    kind=["native", "canonical"],
    elsewhere={"own": False, "other": True},
    parallelism=[3, 2],
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
    assert sorted(first.records) == sorted(Counter(left.records).items())
    assert sorted(second.records) == sorted(Counter(right.records).items())
    assert first.prepared == second.prepared == {}


def test_after_the_first_checkpoint_elsewhere_a_crash_needs_nothing_of_the_origin() -> None:
    left, right, first, second = uneven(5), long(2), Outside(), Outside()
    old, new = MemoryStore("memory://old"), MemoryStore("memory://new")
    stop_when_a_part_has_ended(side_by_side(left, right, first, second), old, "native")

    async def until_two_checkpoints() -> None:
        job = side_by_side(left, right, first, second)
        runner = JobRunner(
            job, new, settings(parallelism=3), effects(2), restore_from=RestoreFrom("halt", old)
        )
        running = asyncio.ensure_future(runner.run())
        while runner.incarnation is None or runner.incarnation.driver.metrics.completed < 2:
            await runner.effects.clock.sleep(0.2)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(until_two_checkpoints())
    old._objects.clear()
    run(side_by_side(left, right, first, second), new, settings(parallelism=2), seed=3)
    assert sorted(first.records) == sorted(Counter(left.records).items())
    assert sorted(second.records) == sorted(Counter(right.records).items())
