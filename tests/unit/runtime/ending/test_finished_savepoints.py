"""Savepoints of a job of which a part has ended: nothing is read twice, nothing is held back."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.support.depth import one_by_one
from tests.support.faults import Failure, SteerableStore
from tests.support.pipelines import Outside, acted_on, effects, run
from tests.support.pressure import checkpoints
from tests.unit.runtime.ending.jobs import (
    exited,
    long,
    operator,
    settings,
    side_by_side,
    uneven,
)
from tidelog import Job, JobRunner, RestoreFrom, Savepoint, SavepointFailedError
from tidelog.checkpoint.finished import partially_finished
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectStore

pytestmark = pytest.mark.usefixtures("workers")


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
    assert sorted(first.records) == sorted(Counter(left.records).items())
    assert sorted(second.records) == sorted(Counter(right.records).items())
    assert first.prepared == second.prepared == {}


@pytest.mark.parametrize("kind", ["native", "canonical"])
def test_after_a_savepoint_that_failed_another_one_stops_the_job(kind: Any) -> None:
    left, right, first, second = uneven(5), long(2), Outside(), Outside()
    job, store = side_by_side(left, right, first, second), MemoryStore()
    stop_when_a_part_has_ended(job, SteerableStore(store), kind)
    names = [each.name for each in checkpoints(store) if isinstance(each, Savepoint)]
    assert names == ["halt"]
    run(side_by_side(left, right, first, second), store, settings(), seed=2)
    assert sorted(first.records) == sorted(Counter(left.records).items())
    assert sorted(second.records) == sorted(Counter(right.records).items())


def test_a_drain_ends_what_has_not_ended_yet() -> None:
    first, second, store = Outside(), Outside(), MemoryStore()
    job = side_by_side(uneven(5), long(2), first, second)
    assert stop_when_a_part_has_ended(job, store, drain=True).final
    counted = sorted(first.records + second.records)
    assert 0 < sum(n for _, n in counted) < len(uneven(5).records + long(2).records)
    again = run(side_by_side(uneven(5), long(2), first, second), store, settings())
    assert again.already_complete
    assert sorted(first.records + second.records) == counted
