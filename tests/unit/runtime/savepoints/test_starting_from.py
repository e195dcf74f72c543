"""Jobs that start from a savepoint: claimed or not, in their own store or another, by values."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.support.faults import Failure, SteerableStore
from tests.support.pipelines import Outside, Portions, config, effects, word_count, words
from tidelog.checkpoint.audit import audit
from tidelog.checkpoint.inventory import read_inventory
from tidelog.checkpoint.manifest import Checkpoint, Savepoint, SavepointFormat, is_canonical
from tidelog.errors import ConfigError, ObjectNotFoundError, SavepointFailedError
from tidelog.runtime.restore_from import RestoreFrom
from tidelog.runtime.runner import JobResult, JobRunner
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectStore

FORMATS: list[SavepointFormat] = ["native", "canonical"]


def source() -> Portions:
    return words(length=60)


async def _start(
    store: ObjectStore, sink: Outside, start: RestoreFrom | None, **settings: Any
) -> JobResult:
    job = word_count(source(), sink)
    return await JobRunner(job, store, config(**settings), effects(), restore_from=start).run()


def start(
    store: ObjectStore, sink: Outside, chosen: RestoreFrom | None = None, **settings: Any
) -> JobResult:
    return asyncio.run(_start(store, sink, chosen, **settings))


def stopped(store: ObjectStore, format: SavepointFormat, sink: Outside, **settings: Any) -> None:
    """A job that was stopped half way with the savepoint `halt`."""

    async def run() -> None:
        world = effects()
        runner = JobRunner(word_count(source(), sink), store, config(**settings), world)
        running = asyncio.ensure_future(runner.run())
        await world.clock.sleep(9.2)
        await runner.stop("halt", format)
        await running

    asyncio.run(run())


def entries(store: ObjectStore) -> list[Checkpoint]:
    inventory = asyncio.run(read_inventory(store))
    return list(inventory.slots.checkpoints.values())


def objects(store: ObjectStore, checkpoint: Checkpoint) -> set[str]:
    inventory = asyncio.run(read_inventory(store))
    return {need.name for need in inventory.needs(checkpoint)}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("before", ["memory", "rocksdb"])
@pytest.mark.parametrize("after", ["memory", "rocksdb"])
@pytest.mark.parametrize("changelog", [(True, False), (False, True), (True, True)])
def test_a_savepoint_starts_a_job_on_another_store_whatever_table_and_log_it_has(
    format: SavepointFormat, before: str, after: str, changelog: tuple[bool, bool]
) -> None:
    old, new, sink = MemoryStore("memory://old"), MemoryStore("memory://new"), Outside()
    stopped(old, format, sink, table=before, changelog=changelog[0])
    kept = dict(old._objects)
    result = start(
        new, sink, RestoreFrom("halt", old), table=after, changelog=changelog[1], parallelism=2
    )
    assert result.restored_slot == entries(old)[-1].slot
    assert dict(sink.records) == Counter(source().records)
    assert max(sink.commits.values()) == 1
    assert old._objects == kept, "the other store is only read"
    assert not asyncio.run(audit(new, deep=True)).problems, "the new one needs nothing else"


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_savepoint_starts_a_job_of_another_parallelism(
    format: SavepointFormat, parallelism: int
) -> None:
    old, new, sink = MemoryStore("memory://old"), MemoryStore("memory://new"), Outside()
    stopped(old, format, sink)
    start(new, sink, RestoreFrom("halt", old), parallelism=parallelism)
    assert dict(sink.records) == Counter(source().records)
    again, other = MemoryStore("memory://again"), Outside()
    stopped(again, format, other)
    start(again, other, parallelism=parallelism)
    assert dict(other.records) == Counter(source().records)


def test_the_same_command_started_again_resumes_from_its_own_store() -> None:
    old, new, sink = MemoryStore("memory://old"), MemoryStore("memory://new"), Outside()
    stopped(old, "native", sink)

    async def killed() -> None:
        world = effects()
        job = word_count(source(), sink)
        runner = JobRunner(job, new, config(), world, restore_from=RestoreFrom("halt", old))
        running = asyncio.ensure_future(runner.run())
        await world.clock.sleep(3.0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(killed())
    own = entries(new)
    assert own, "it had completed a checkpoint"
    result = start(new, sink, RestoreFrom("halt", old))
    assert result.restored_slot == own[-1].slot
    assert dict(sink.records) == Counter(source().records)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("changelog", [True, False])
def test_without_a_claim_the_savepoint_stays_and_no_checkpoint_needs_its_objects(
    format: SavepointFormat, changelog: bool
) -> None:
    store, sink = MemoryStore(), Outside()
    stopped(store, format, sink, changelog=changelog)
    savepoint = entries(store)[-1]
    theirs = objects(store, savepoint)
    start(store, sink, RestoreFrom("halt"), changelog=changelog)
    assert dict(sink.records) == Counter(source().records)
    kept = entries(store)
    assert savepoint in kept
    later = [entry for entry in kept if entry.slot > savepoint.slot]
    assert later
    assert all(objects(store, entry).isdisjoint(theirs) for entry in later)
    assert theirs <= store._objects.keys()


@pytest.mark.parametrize("format", FORMATS)
def test_with_a_claim_the_savepoint_goes_like_any_checkpoint(format: SavepointFormat) -> None:
    store, sink = MemoryStore(), Outside()
    stopped(store, format, sink)
    savepoint = entries(store)[-1]
    theirs = objects(store, savepoint)
    start(store, sink, RestoreFrom("halt", claim=True))
    assert dict(sink.records) == Counter(source().records)
    kept = entries(store)
    assert savepoint not in kept
    needed = {name for entry in kept for name in objects(store, entry)}
    assert not (theirs - needed) & store._objects.keys(), "what nobody needs went with it"


def test_a_claim_to_another_store_is_refused() -> None:
    with pytest.raises(ConfigError, match="in the job's own store"):
        RestoreFrom("halt", MemoryStore(), claim=True)


def test_a_name_that_no_savepoint_has_is_refused_before_anything_is_written() -> None:
    store, sink = MemoryStore(), Outside()
    stopped(store, "native", sink)
    before = dict(store._objects)
    with pytest.raises(ObjectNotFoundError, match="expected one of halt"):
        start(store, sink, RestoreFrom("none"))
    assert store._objects == before


def _calls(format: SavepointFormat, changelog: bool) -> list[tuple[str, str]]:
    """What a savepoint asks of the store, found by taking one."""
    store = SteerableStore(MemoryStore())
    found: list[tuple[str, str]] = []

    async def run() -> None:
        world = effects()
        runner = JobRunner(
            word_count(source(), Outside()), store, config(changelog=changelog), world
        )
        running = asyncio.ensure_future(runner.run())
        await world.clock.sleep(9.2)
        before = len(store.calls)
        await runner.savepoint("probe", format)
        found.extend(store.calls[before:])
        await running

    asyncio.run(run())
    return found


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("changelog", [True, False])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("stop", [False, True])
def test_a_savepoint_survives_the_failure_of_any_of_its_calls_or_fails_and_another_works(
    format: SavepointFormat, changelog: bool, after: bool, stop: bool
) -> None:
    calls = [(op, name) for op, name in _calls(format, changelog) if op in ("put", "create")]
    assert calls
    kinds = Counter((op, name.partition("/")[0]) for op, name in calls)
    for (operation, prefix), count in kinds.items():
        for nth in range(1, count + 1):
            _one_failure(format, changelog, stop, Failure(operation, prefix, after=after, nth=nth))


def _one_failure(format: SavepointFormat, changelog: bool, stop: bool, failure: Failure) -> None:
    store, sink = SteerableStore(MemoryStore()), Outside()

    async def run() -> Savepoint:
        world = effects()
        runner = JobRunner(word_count(source(), sink), store, config(changelog=changelog), world)
        running = asyncio.ensure_future(runner.run())
        await world.clock.sleep(9.2)
        store.fail(failure)
        try:
            taken = await (runner.stop if stop else runner.savepoint)("first", format)
        except SavepointFailedError as error:
            assert "injected failure" in str(error)
            store.fail()
            await world.clock.sleep(2.0)
            taken = await (runner.stop if stop else runner.savepoint)("second", format)
        store.fail()
        await running
        return taken

    taken = asyncio.run(run())
    assert taken in entries(store.inner)
    assert is_canonical(taken) == (format == "canonical")
    if stop:
        start(store.inner, sink, changelog=changelog)
    assert dict(sink.records) == Counter(source().records), failure
    assert not asyncio.run(audit(store.inner, deep=True)).problems
    left = MemoryStore("memory://left")
    other = Outside()
    start(left, other, RestoreFrom(taken.name, store.inner), changelog=changelog)
    counts = Counter(source().records)
    assert all(counts[word] >= count for word, count in other.records)
