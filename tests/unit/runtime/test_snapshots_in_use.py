"""What a checkpoint under way refers to stays, whatever replaces it in the meantime."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from tests.support.clock import VirtualClock
from tests.support.faults import Failure, SteerableStore
from tests.support.harness import Incarnation, contents, job_config, retained_objects
from tidelog.changelog.upload_config import UploadConfig
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore

Steps = Callable[[Incarnation, SteerableStore], Awaitable[None]]


def scenario(directory: Path, steps: Steps, *, changelog: bool = True) -> None:
    async def main() -> None:
        store = SteerableStore(MemoryStore("memory://in-use"))
        config = job_config(directory, changelog=changelog, upload=UploadConfig(inline_bytes=0))
        job = Incarnation(store, config, VirtualClock(), Random(1))
        await job.start()
        write(job, 0)
        assert await job.finish(await job.barrier())
        await steps(job, store)
        await job.crash()

    asyncio.run(main())


def write(job: Incarnation, number: int) -> None:
    job.probe_of("k").value.update((number, "text"))


async def missing(job: Incarnation, store: SteerableStore) -> set[str]:
    """Objects that retained checkpoints name and the store does not have."""
    _, needed = await retained_objects(store.inner, job.runner.effects)
    assert isinstance(store.inner, MemoryStore)
    return needed - set(store.inner._objects)


def test_a_materialization_during_a_checkpoint_does_not_take_its_log_away(tmp_path: Path) -> None:
    async def steps(job: Incarnation, store: SteerableStore) -> None:
        write(job, 1)
        barriered = await job.barrier()
        await job.settle(barriered)
        await job.materialize(0)
        await job.collector.collect(job.live)
        assert await job.finish(barriered)
        assert await missing(job, store) == set()

    scenario(tmp_path, steps)


@pytest.mark.parametrize("changelog", [True, False], ids=["log", "tables"])
def test_a_checkpoint_that_is_durable_though_its_answer_was_lost_keeps_its_objects(
    tmp_path: Path, changelog: bool
) -> None:
    """It was given up, and it is what the next start resumes from."""

    async def steps(job: Incarnation, store: SteerableStore) -> None:
        write(job, 1)
        store.fail(Failure("create", object_names.CHECKPOINTS, after=True))
        assert not await job.finish(await job.barrier())
        if changelog:
            await job.materialize(0)
        else:
            write(job, 2)
            await job.settle(await job.barrier())
        await job.collector.collect(job.live)
        assert await missing(job, store) == set()
        await job.crash()
        again = Incarnation(store, job.config, job.clock, Random(2))
        await again.start()
        assert contents(again.probe_of("k"), "k")["value"] == (1, "text")
        await again.crash()

    scenario(tmp_path, steps, changelog=changelog)


def test_what_a_checkpoint_given_up_captured_goes_with_the_next_completed_one(
    tmp_path: Path,
) -> None:
    async def steps(job: Incarnation, store: SteerableStore) -> None:
        write(job, 1)
        barriered = await job.barrier()
        await job.settle(barriered)
        await job.drop(barriered)
        await job.materialize(0)
        for number in (2, 3, 4):
            write(job, number)
            assert await job.finish(await job.barrier())
        await job.collector.collect(job.live)
        names, needed = await retained_objects(store.inner, job.runner.effects)
        assert isinstance(store.inner, MemoryStore)
        live = job.collector.ledger.closure(job.live())
        assert set(store.inner._objects) == names | needed | live
        assert len(store.inner._objects) < 14

    scenario(tmp_path, steps)
