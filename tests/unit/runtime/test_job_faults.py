"""A storage call fails, hangs or finds the disk full: right counts, or a clear stop and right
counts after the next start.
"""

import asyncio
from collections import Counter

import pytest

from tests.support.depth import more_in_depth
from tests.support.faults import Fault, FaultKind, FaultyStore, SteerableStore
from tests.support.harness import assert_nothing_is_left_over
from tests.support.pipelines import (
    Outside,
    Portions,
    acted_on,
    config,
    effects,
    run,
    running,
    word_count,
    words,
)
from tidelog import (
    CheckpointConfig,
    FlushConfig,
    JobConfig,
    JobRunner,
    MaterializeConfig,
    UploadConfig,
)
from tidelog.catalog.inventory import read_slots
from tidelog.errors import MaterializationFailedError, TidelogError
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore

SOURCE = words(2, 20)
EXPECTED = sorted(Counter(SOURCE.records).items())


def faulty(inner: MemoryStore, *faults: Fault) -> FaultyStore:
    return FaultyStore(inner, faults, effects().clock)


def finish(inner: MemoryStore, sink: Outside, settings: JobConfig) -> None:
    """Start until the job is complete, and look at what it left."""
    run(word_count(SOURCE, sink), inner, settings, seed=2)
    assert sorted(sink.records) == EXPECTED
    assert sink.prepared == {}
    assert_nothing_is_left_over(inner)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("changelog", [True, False], ids=["log", "tables"])
def test_whichever_storage_call_fails_the_counts_are_right(changelog: bool, after: bool) -> None:
    settings = config(changelog=changelog)
    counted = faulty(MemoryStore())
    run(word_count(SOURCE, Outside()), counted, settings)
    calls = len(counted.calls)
    assert calls > 30
    # Outside of deep runs each call fails in one of the four ways: before or after, with or
    # without the log.
    every = more_in_depth(4, 1)
    for nth in range(1 + (2 * changelog + after) % every, calls + 1, every):
        inner, sink = MemoryStore("memory://fault"), Outside()
        store = faulty(inner, Fault(FaultKind.FAIL, nth=nth, after=after))
        try:
            run(word_count(SOURCE, sink), store, settings)
        except TidelogError as error:
            assert "injected" in str(error), (nth, error)
        else:
            assert sorted(sink.records) == EXPECTED, nth
        finish(inner, sink, settings)


@pytest.mark.parametrize("nth", range(1, 12))
def test_a_crash_at_any_commit_leaves_right_counts(nth: int) -> None:
    """The job is cancelled at its nth write; whatever was under way is lost with it."""
    inner, sink, settings = MemoryStore("memory://crash"), Outside(), config()
    store = SteerableStore(inner)

    async def crash() -> None:
        async with running(JobRunner(word_count(SOURCE, sink), store, settings, effects())):
            while len([c for c in store.calls if c[0] in ("put", "create")]) < nth:
                await asyncio.sleep(0)

    asyncio.run(crash())
    finish(inner, sink, settings)


def test_materializations_that_keep_failing_stop_the_job_loudly_and_lose_nothing() -> None:
    inner, sink = MemoryStore("memory://materialize"), Outside()
    settings = config(
        materialize=MaterializeConfig(interval=1.0, retry_pause=0.1, tolerable_failures=2)
    )
    store = faulty(inner, Fault(FaultKind.FAIL, "put", object_names.MATERIALIZATIONS))
    with pytest.raises(MaterializationFailedError, match="3 materializations"):
        run(word_count(SOURCE, sink), store, settings)
    finish(inner, sink, settings)


def test_with_materialization_off_the_log_alone_restores_the_job() -> None:
    inner, sink = MemoryStore("memory://log-alone"), Outside()
    settings = config(
        materialize=MaterializeConfig(enabled=False, interval=0.1, tolerable_failures=0)
    )
    store = faulty(inner, Fault(FaultKind.FAIL, "put", object_names.MATERIALIZATIONS))
    acted_on(word_count(SOURCE, sink), store, at=2.5, settings=settings, crash=True)
    taken = asyncio.run(read_slots(inner)).checkpoints.values()
    states = [state for checkpoint in taken for _, state in checkpoint.subtasks()]
    assert any(state.log or state.inline for state in states)
    assert not any(state.materialization for state in states)
    finish(inner, sink, settings)


def test_a_stalled_store_holds_the_job_back_within_its_memory_limit() -> None:
    """Nothing is durable, so nothing is read any more, until the store moves again."""
    inner, sink = MemoryStore("memory://stalled"), Outside()
    source = Portions({"endless": [f"key-{n}" * 5 for n in range(20_000)]}, portion=200, pause=0.01)
    limit = 20_000
    settings = config(
        parallelism=1,
        upload=UploadConfig(limit_bytes=limit, segment_bytes=4000, inline_bytes=100),
        checkpoint=CheckpointConfig(interval=1.0, timeout=20.0),
        flush=FlushConfig(rows=200),
    )
    store = SteerableStore(inner)
    store.hold(object_names.SEGMENTS)

    async def act(runner: JobRunner) -> list[int]:
        held = []
        while len(held) < 300:
            await runner.effects.clock.sleep(0.05)
            held.append(runner.incarnation.start.uploader.metrics.queued_bytes)
        store.release()
        return held

    _, held = acted_on(word_count(source, sink), store, act, at=0, settings=settings)
    one_flush = 20_000  # the most that a subtask adds before it asks again
    assert limit < max(held) <= limit + one_flush
    assert held[-1] == held[-100], "nothing moved"
    assert sorted(sink.records) == sorted(Counter(source.records).items())
