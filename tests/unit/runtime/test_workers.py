"""Jobs in several workers: what is lost with one of them, what crosses between them, and what a
user sees of all of them.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tests.support.depth import more_in_depth
from tests.support.faults import SteerableStore
from tests.support.pipelines import Outside, config, effects, run, word_count, words
from tests.support.workers import Actors, with_workers
from tidelog import IterableSource, Job, JobConfig, JobRunner, Row, status_of
from tidelog.checkpoint.manifest import StateInfo
from tidelog.errors import ConfigError, StateSchemaError, UserFunctionError, WorkerLostError
from tidelog.runtime.runner import JobResult
from tidelog.runtime.workers.parent import Workers
from tidelog.runtime.workers.worker import Work
from tidelog.settings import load_config
from tidelog.state.registry import StateRegistry
from tidelog.storage.memory import MemoryStore


async def until_lost(
    job: Job, store: MemoryStore, seed: int, lost: int | None, at: float, *, cut: bool = False
) -> JobResult:
    """Run a job in three workers; at a time kill one of them, or make it fall silent."""
    world, settings = effects(seed), config(parallelism=3, workers=3, worker_timeout=5.0)
    rng = Random(seed)
    work = Work(job, settings, lambda _: store)
    actors = Actors(work, [world] * 3, lambda: max(0.0, rng.random() - 0.9))
    runner = JobRunner(job, store, settings, world, workers=Workers(actors, world))
    running = asyncio.ensure_future(runner.run())
    if lost is not None:
        await world.clock.sleep(at)
        if cut:
            actors.silence(lost)
        elif actors.running:
            await actors.kill_one(lost)
    return await running


@pytest.mark.parametrize("cut", [False, True], ids=["killed", "silent"])
def test_a_job_that_lost_a_worker_at_any_time_goes_on_from_its_last_checkpoint(cut: bool) -> None:
    for seed in range(more_in_depth(3, 30)):
        rng, store, out = Random(seed), MemoryStore(), Outside()
        job = word_count(words(4, 60), out)
        for start in range(2):
            at = rng.uniform(0.1, 12.0)
            with pytest.raises(WorkerLostError, match=r"worker \d; expected to work until"):
                asyncio.run(
                    until_lost(job, store, 10 * seed + start, rng.randrange(3), at, cut=cut)
                )
        asyncio.run(until_lost(job, store, 100 + seed, None, 0.0))
        assert dict(out.records) == Counter(words(4, 60).records)
        assert out.prepared == {}


def test_the_status_of_a_job_in_workers_is_that_of_all_of_them() -> None:
    seen: list[Any] = []

    async def ended(workers: int) -> None:
        world, settings = effects(), config(parallelism=3, workers=workers)
        store, job = MemoryStore(), word_count(words(4, 30), Outside())
        work = Work(job, settings, lambda _: store)
        of_all = Workers(Actors(work, [world] * 3), world) if workers > 1 else None
        runner = JobRunner(job, store, settings, world, workers=of_all)
        await runner.run()
        seen.append(status_of(runner))

    asyncio.run(ended(1))
    asyncio.run(ended(3))
    one, three = seen
    for name in ("phase", "records_read", "late_records"):
        assert getattr(one, name) == getattr(three, name)
    assert [o.id for o in one.operators] == [o.id for o in three.operators]
    for mine, theirs in zip(one.operators, three.operators, strict=True):
        assert [t.subtask for t in theirs.tasks] == [0, 1, 2] and theirs.parallelism == 3
        assert (mine.records_in, mine.watermark_ms) == (theirs.records_in, theirs.watermark_ms)
    assert one.workers == () and [w.worker for w in three.workers] == [0, 1, 2]
    assert len({w.process for w in three.workers}) == 3
    assert sum(w.records_in for w in three.workers) == three.records_read
    assert sum(w.subtasks for w in three.workers) == sum(o.parallelism for o in three.operators)
    assert one.state.updates == three.state.updates
    assert three.memory.budget_bytes == one.memory.budget_bytes


class Twice(Exception):
    """An exception that pickles and does not unpickle: BaseException's `__reduce__` passes its
    constructor one argument, which takes two.
    """

    def __init__(self, first: int, second: int) -> None:
        super().__init__(first)


def local(_: int) -> Any:
    class Local:
        """Pickle finds no class within a function."""

    return Local()


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (local, r"Local, sent to another worker.*top of a module"),
        (lambda n: Twice(n, n), "__reduce__"),
        (lambda n: n if n < 90 else local(n), "Local"),
        (lambda n: (n, local(n)), r"type tuple, sent to another worker.*top of a module"),
        (lambda n: Row(n=n, made=local(n)), r"type Row\w*, sent to another worker"),
    ],
    ids=["sent", "received", "sent when there is room", "in a tuple", "in a row"],
)
def test_what_a_message_to_another_worker_raises_ends_the_job_and_names_the_record(
    made: Callable[[int], Any], reason: str
) -> None:
    job = Job("raised")
    source = job.source(IterableSource(list(range(100))), parallelism=1).map(made)
    source.rebalance().map(lambda record: 1).sink(Outside())
    with with_workers(3), pytest.raises(UserFunctionError, match=reason):
        run(job, MemoryStore(), config(parallelism=3, buffer_records=1, channel_buffers=2))


@pytest.mark.parametrize("workers", [1, 3])
def test_an_object_is_deleted_once(workers: int) -> None:
    store = SteerableStore(MemoryStore())
    with with_workers(workers):
        run(word_count(words(4, 30), Outside()), store, config(parallelism=3))
    deleted = Counter(name for operation, name in store.calls if operation == "delete")
    assert len(deleted) > 10 and set(deleted.values()) == {1}


def test_workers_that_declare_their_states_in_another_order_are_refused() -> None:
    registry = StateRegistry("count")
    registry.adopt([StateInfo(0, "a", "value", ("int",)), StateInfo(1, "b", "value", ("int",))], ())
    with pytest.raises(StateSchemaError, match="in one order"):
        registry.adopt([StateInfo(0, "b", "value", ("int",))], ())


def test_options_of_workers_are_checked() -> None:
    assert load_config(options={"workers": 3}).parallelism == 3
    assert load_config(options={"workers": 3, "parallelism": 2}).parallelism == 2
    assert load_config(options={"workers": "auto"}).workers >= 1
    with pytest.raises(ConfigError, match="at least 32 MiB for each of 4 workers"):
        JobConfig(workers=4, memory=100 << 20)
    job = word_count(words(), Outside())
    with pytest.raises(ConfigError, match="tidelog run"):
        JobRunner(job, MemoryStore(), replace(config(), workers=2))
