"""Savepoints of running jobs, and stopping with one: by values, in virtual time.

A savepoint under way, however long it takes, stops no materialization.
"""

import asyncio
import errno
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.support.depth import one_by_one
from tests.support.faults import SteerableStore
from tests.support.pipelines import (
    Outside,
    Portions,
    acted_on,
    config,
    copy,
    effects,
    running,
    word_count,
    words,
)
from tests.support.pressure import checkpoints
from tidelog import (
    ConfigError,
    Job,
    JobResult,
    JobRunner,
    MaterializeConfig,
    Savepoint,
    SavepointFailedError,
    Sink,
    Source,
    Tumbling,
    status_of,
)
from tidelog.checkpoint.manifest import SavepointFormat
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectStore
from tidelog.table import memory

Act = Callable[[JobRunner], Awaitable[Any]]


def test_a_savepoint_of_a_job_that_ends_is_refused() -> None:
    job, answers = word_count(words(1, 20), Outside()), list[Any]()

    class Asking(MemoryStore):
        """Asks for a savepoint whenever something is deleted, the last time when all has ended."""

        async def delete(self, name: str) -> None:
            asked = asyncio.ensure_future(runner.savepoint())
            await asyncio.wait([asked], timeout=50)
            answers.append(asked.done() and asked.exception())
            await super().delete(name)

    runner = JobRunner(job, Asking(), config(retain=1), effects())
    asyncio.run(runner.run())
    assert isinstance(answers[-1], SavepointFailedError)


def run(
    job: Job, store: ObjectStore, act: Act | None = None, at: float = 9.2, **settings: Any
) -> tuple[JobResult, Any]:
    """Run a job, and `act` on it when it has run for `at` seconds; the result and act's answer."""
    return acted_on(job, store, act, at=at, settings=config(**settings))


@pytest.mark.parametrize("changelog", [True, False])
def test_a_savepoint_is_a_slot_of_its_name_that_retention_never_drops(changelog: bool) -> None:
    store, sink = MemoryStore(), Outside()
    job = word_count(words(length=60), sink)
    result, savepoint = run(job, store, lambda r: r.savepoint("mine"), changelog=changelog)
    assert isinstance(savepoint, Savepoint)
    assert (savepoint.name, savepoint.savepoint_format) == ("mine", "native")
    assert result.stopped is None
    kept = checkpoints(store)
    assert [e.slot for e in kept if isinstance(e, Savepoint)] == [savepoint.slot]
    assert len([e for e in kept if not isinstance(e, Savepoint)]) == config().retain
    assert kept[0] == savepoint, "older checkpoints went"
    assert sum(Counter(dict(sink.records)).values()) >= 50


@one_by_one(changelog=[True, False], mode=["exactly-once", "at-least-once"])
def test_a_job_that_was_stopped_goes_on_exactly_where_it_was(changelog: bool, mode: str) -> None:
    store, sink = MemoryStore(), Outside()
    source = Portions({f"split-{s}": [f"{s}-{n}" for n in range(40)] for s in range(3)})
    settings = {"changelog": changelog, "mode": mode}
    stopped, savepoint = run(copy(source, sink), store, lambda r: r.stop("halt"), **settings)
    assert stopped.stopped == savepoint
    assert stopped.last_checkpoint == savepoint.slot
    assert not savepoint.final
    before = sink.records
    assert 0 < len(before) < len(source.records)
    assert not sink.prepared, "what was written before the barrier is committed, nothing is behind"
    resumed, _ = run(copy(source, sink), store, **settings)
    assert resumed.restored_checkpoint == savepoint.slot
    assert Counter(sink.records) == Counter(source.records), "no record lost, none twice"
    assert sink.records[: len(before)] == before


def windows(source: Source, sink: Sink) -> Job:
    job = Job("windows")
    timed = job.source(source).event_time(lambda _: 1_000, max_delay_ms=0)
    timed.key_by(lambda w: w).window(Tumbling(60_000)).count().sink(sink)
    return job


def test_without_drain_no_window_fires_and_with_drain_all_do() -> None:
    source = words(length=200)
    kept, sink = MemoryStore(), Outside()
    _, savepoint = run(windows(source, sink), kept, lambda r: r.stop("keep"))
    assert sink.records == []
    assert not savepoint.final
    drained, flushed = MemoryStore(), Outside()
    flush = lambda r: r.stop("flush", drain=True)  # noqa: E731
    result, savepoint = run(windows(source, flushed), drained, flush)
    assert savepoint.final
    assert result.stopped == savepoint
    read = sum(record[2] for record in flushed.records)
    assert 0 < read < 400, "all that was read, and not all there is"
    again, _ = run(windows(source, flushed), drained)
    assert again.restored_checkpoint == savepoint.slot
    emitted_again = flushed.records[len(flushed.records) // 2 :]
    assert sum(record[2] for record in emitted_again) == 400, "the same windows, with all there is"


def test_names_are_labels_and_free() -> None:
    async def act(runner: JobRunner) -> None:
        await runner.savepoint("a")
        with pytest.raises(ConfigError, match="that of checkpoint"):
            await runner.savepoint("a")
        for bad in ("", "17", "latest", "a/b", "a b"):
            with pytest.raises(ConfigError, match="savepoint name"):
                await runner.savepoint(bad)
        first = await runner.savepoint()
        second = await runner.savepoint()
        assert len({"a", first.name, second.name}) == 3

    run(word_count(words(length=200), Outside()), MemoryStore(), act)


def test_two_who_ask_for_one_savepoint_at_once_are_both_answered() -> None:
    async def act(runner: JobRunner) -> None:
        asked = [asyncio.ensure_future(runner.savepoint("a")) for _ in range(2)]
        await asyncio.wait(asked, timeout=50)
        assert asked[0].result().name == "a"
        with pytest.raises(SavepointFailedError, match="savepoint 'a' is under way"):
            asked[1].result()

    run(word_count(words(length=200), Outside()), MemoryStore(), act)


async def test_who_waits_for_a_checkpoint_is_given_the_savepoint_that_holds_it() -> None:
    store, world = SteerableStore(MemoryStore()), effects()
    runner = JobRunner(word_count(words(length=150), Outside()), store, config(), world)

    async def ask(what: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        asked = asyncio.ensure_future(what)
        await world.clock.sleep(0.1)
        return asked

    async with running(runner):
        await world.clock.sleep(9.2)
        store.hold(object_names.CHECKPOINTS)
        under_way = await ask(runner.incarnation.driver.checkpoint())
        savepoint = await ask(runner.savepoint("rows", "canonical"))
        waiting = await ask(runner.incarnation.driver.checkpoint())
        store.release()
        assert await waiting == await savepoint != await under_way


INTERVAL = 2.5
ROUNDS = 4
ROWS = f"{object_names.SEGMENTS}00000000-sp-"
"""Segments of the rows of a canonical savepoint."""


@pytest.mark.parametrize(
    ("kind", "held"),
    [
        ("native", object_names.CHECKPOINTS),
        ("canonical", object_names.CHECKPOINTS),
        ("canonical", ROWS),
    ],
    ids=["native-slot", "canonical-slot", "canonical-rows"],
)
async def test_every_changed_table_is_materialized_on_time_while_a_savepoint_hangs(
    kind: SavepointFormat, held: str
) -> None:
    store, sink, source = SteerableStore(MemoryStore()), Outside(), words(length=150)
    world = effects()
    settings = config(materialize=MaterializeConfig(interval=INTERVAL))
    runner = JobRunner(word_count(source, sink), store, settings, world)
    running = asyncio.ensure_future(runner.run())
    await world.clock.sleep(9.2)
    store.hold(held)
    asked = asyncio.ensure_future(runner.savepoint("slow", kind))
    await world.clock.sleep(0.1)
    assert store.waiting == 1, "it is on its way into the store"
    before = len(store.calls)
    await world.clock.sleep(ROUNDS * INTERVAL)
    assert not asked.done() and store.waiting
    written = [name for call, name in store.calls[before:] if call == "put"]
    for subtask in range(2):
        prefix = f"{object_names.MATERIALIZATIONS}00000000/aggregate-{subtask}-"
        count = sum(1 for name in written if name.startswith(prefix))
        assert count in (ROUNDS - 1, ROUNDS), "one in each interval, by phase"
    assert status_of(runner).materializations.missed == 0
    store.release()
    assert (await asked).savepoint_format == kind
    await running
    assert dict(sink.records) == Counter(source.records)


def test_a_savepoint_of_rows_that_finds_the_disk_full_leaves_nothing_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def act(runner: JobRunner) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(memory, "_write_chunk", full)
            with pytest.raises(SavepointFailedError, match="No space left"):
                await runner.savepoint("rows", "canonical")
        assert not list(tmp_path.rglob("savepoint-*"))

    run(word_count(words(length=200), Outside()), MemoryStore(), act, work_dir=tmp_path)


def test_what_a_dropped_savepoint_alone_needed_goes_while_the_job_runs() -> None:
    store = MemoryStore()

    def rows() -> set[str]:
        return {name for name in store._objects if "-sp-" in name}

    async def act(runner: JobRunner) -> None:
        savepoint = await runner.savepoint("mine", "canonical")
        await runner.effects.clock.sleep(3.0)
        assert rows()
        await store.delete(object_names.checkpoint(savepoint.slot))
        runner.incarnation.collector.forget(savepoint.slot)
        await runner.effects.clock.sleep(0.1)
        assert not rows()
        assert (await runner.savepoint("mine")).name == "mine", "its name is free again"

    run(word_count(words(length=200), Outside()), store, act)
