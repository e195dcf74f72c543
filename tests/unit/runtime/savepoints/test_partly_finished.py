"""Savepoints of a job of which a part has ended, and stopping it: nothing is lost or doubled."""

import asyncio
from collections import Counter

import pytest

from tests.support.faults import Failure, SteerableStore
from tests.support.pipelines import Outside, Portions, config, effects
from tidelog.catalog.inventory import read_inventory
from tidelog.checkpoint.manifest import Savepoint, SavepointFormat
from tidelog.errors import SavepointFailedError
from tidelog.runtime.graph import Job
from tidelog.runtime.restore.choose import RestoreFrom
from tidelog.runtime.runner import JobRunner
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectStore

SHORT = Portions({"a": ["x"] * 10, "b": ["y"] * 5})
LONG = Portions({f"long-{n}": [f"w{(n + i) % 5}" for i in range(300)] for n in range(2)})
EXPECTED = Counter(SHORT.records + LONG.records)


def counting(sink: Outside) -> Job:
    """Counts the words of a source that ends early and of one that goes on."""
    job = Job("two-sources")
    short = job.source(SHORT, name="short").map(str, name="prepared")
    both = short.union(job.source(LONG, name="long"))
    both.key_by(lambda w: w).aggregate(lambda _: 1, lambda a, b: a + b, name="count").sink(sink)
    return job


async def _stopped(
    store: ObjectStore, sink: Outside, format: SavepointFormat, *, drain: bool, fails: bool
) -> Savepoint:
    world = effects()
    runner = JobRunner(counting(sink), store, config(), world)
    running = asyncio.ensure_future(runner.run())
    await world.clock.sleep(20.2)
    assert runner.incarnation is not None
    exited = {task.id.operator for task in runner.incarnation.deployment.tasks if task.exited}
    assert exited and "count" not in " ".join(exited), "a part has ended, and not all"
    if fails:
        assert isinstance(store, SteerableStore)
        store.fail(Failure("create", "checkpoints/"))
        with pytest.raises(SavepointFailedError, match="injected failure"):
            await runner.stop("first", format)
    taken = await runner.stop("halt", format, drain=drain)
    await running
    return taken


@pytest.mark.parametrize("format", ["native", "canonical"])
@pytest.mark.parametrize("fails", [False, True])
def test_a_job_that_is_stopped_behind_the_end_of_a_source_goes_on(
    format: SavepointFormat, fails: bool
) -> None:
    inner, sink = MemoryStore(), Outside()
    asyncio.run(_stopped(SteerableStore(inner), sink, format, drain=False, fails=fails))
    assert sum(dict(sink.records).values()) < EXPECTED.total()
    asyncio.run(JobRunner(counting(sink), inner, config(), effects()).run())
    assert dict(sink.records) == EXPECTED
    names = [
        entry.name
        for entry in asyncio.run(read_inventory(inner)).slots.checkpoints.values()
        if isinstance(entry, Savepoint)
    ]
    assert names == ["halt"]


@pytest.mark.parametrize("format", ["native", "canonical"])
def test_its_savepoint_starts_a_job_on_another_store(format: SavepointFormat) -> None:
    store, sink = MemoryStore("memory://old"), Outside()
    asyncio.run(_stopped(store, sink, format, drain=False, fails=False))
    chosen = RestoreFrom("halt", store)
    runner = JobRunner(
        counting(sink), MemoryStore("memory://new"), config(), effects(), restore_from=chosen
    )
    asyncio.run(runner.run())
    assert dict(sink.records) == EXPECTED


def test_a_drain_ends_what_has_not_ended_yet() -> None:
    store, sink = MemoryStore(), Outside()
    taken = asyncio.run(_stopped(store, sink, "native", drain=True, fails=False))
    assert taken.final
    counted = dict(sink.records)
    assert 0 < sum(counted.values()) < EXPECTED.total()
    again = asyncio.run(JobRunner(counting(sink), store, config(), effects()).run())
    assert again.already_complete
    assert dict(sink.records) == counted
