"""How often a job asks whether its store has all objects, and what it makes of the answer."""

import asyncio
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tests.support.faults import Fault, FaultKind, FaultyStore
from tests.support.harness import Incarnation, Probe, job_config
from tests.support.pipelines import Outside, acted_on, config, word_count, words
from tidelog import JobRunner, SavepointFailedError
from tidelog.checkpoint.config import CheckpointConfig
from tidelog.runtime.operators.operator import OperatorContext
from tidelog.state.handles.keyed import ValueHandle
from tidelog.storage.memory import MemoryStore
from tidelog.storage.object_names import MATERIALIZATIONS, SEGMENTS

OF_THE_START = 1
"""Lists of each kind of object: what generations before have left."""


def lists(store: FaultyStore) -> Counter[str]:
    return Counter(name for operation, name in store.calls if operation == "list")


def looked(interval_s: float | None, *faults: Fault, **options: Any) -> FaultyStore:
    """The store of a job that has run for 9.2 seconds, with a checkpoint each."""
    clock = VirtualClock()
    store = FaultyStore(MemoryStore(), faults, clock)
    schedule = CheckpointConfig(interval=1.0, object_check_interval=interval_s)
    job = word_count(words(length=200), Outside())
    acted_on(job, store, settings=config(checkpoint=schedule), crash=True, clock=clock, **options)
    return store


async def found_missing(runner: JobRunner) -> None:
    assert runner.incarnation is not None
    assert runner.incarnation.driver.metrics.completed > 5
    assert runner.incarnation.driver.objects.lost == 0


@pytest.mark.parametrize(("interval_s", "looks"), [(None, 0), (4.0, 2)])
def test_a_look_is_one_list_of_each_kind_and_checkpoints_make_none(
    interval_s: float | None, looks: int
) -> None:
    asked = lists(looked(interval_s, act=found_missing))
    for kind in (SEGMENTS, MATERIALIZATIONS):
        assert asked[kind] == OF_THE_START + looks


class Values(Probe):
    """Rows that only the log has after a flush: nothing scans them."""

    def open(self, context: OperatorContext) -> None:
        self.backend = context.backend
        self.value = ValueHandle(context.backend, "value", "number int, text string")


class ValuesIncarnation(Incarnation):
    def _probe(self) -> Probe:
        self.probes.append(probe := Values())
        return probe


@pytest.mark.parametrize("table", ["memory", "rocksdb"])
def test_a_loss_that_is_noticed_between_flush_and_snapshot_loses_no_row(
    tmp_path: Path, table: str
) -> None:
    store, clock = MemoryStore(), VirtualClock()
    settings = job_config(tmp_path, parallelism=1, table=table)

    async def main() -> None:
        job = ValuesIncarnation(store, settings, clock, Random(1))
        await job.start()
        job.probe_of("a").value.update((7, "x"))
        assert await job.finish(await job.barrier(loses_objects=True))
        await job.crash()
        restarted = ValuesIncarnation(store, settings, clock, Random(1))
        await restarted.start()
        assert restarted.probe_of("a").value.get() == (7, "x")
        await restarted.crash()

    asyncio.run(main())


def test_what_retention_deletes_while_a_look_goes_on_is_not_missing() -> None:
    late = Fault(FaultKind.DELAY, "list", SEGMENTS, seconds=2.5)
    later = Fault(FaultKind.DELAY, "list", MATERIALIZATIONS, seconds=2.5, after=True)
    looked(0.1, late, later, act=found_missing)


def test_a_savepoint_whose_objects_cannot_be_looked_at_fails_and_the_job_goes_on() -> None:
    async def ask(runner: JobRunner) -> None:
        store = runner.store
        assert isinstance(store, FaultyStore)
        store.faults = (Fault(FaultKind.FAIL, "list", SEGMENTS),)
        with pytest.raises(SavepointFailedError, match="an injected failure"):
            await runner.savepoint("refused")
        store.faults = ()
        await runner.savepoint("taken")

    looked(None, act=ask)
