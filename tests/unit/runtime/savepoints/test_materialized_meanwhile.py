"""A savepoint under way, however long it takes, stops no materialization."""

import asyncio
from collections import Counter

import pytest

from tests.support.faults import SteerableStore
from tests.support.pipelines import Outside, config, effects, word_count, words
from tidelog.checkpoint.manifest import SavepointFormat
from tidelog.materialize.config import MaterializeConfig
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.status.observe import status_of
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore

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
