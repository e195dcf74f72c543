"""A start that is refused because of a processor's own states leaves the running job alone."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.pipelines import Outside, config, effects, words
from tidelog import Job, JobRunner, StatefulProcessor
from tidelog.errors import StateSchemaError, TidelogError, UserFunctionError
from tidelog.storage.memory import MemoryStore


class Count(StatefulProcessor):
    """Counts the rows of a key, in a state whose name and schema a subclass changes."""

    state, schema = "count", "n int"
    inits = closes = 0

    def init(self, handle: Any) -> None:
        self._count = handle.getValueState(self.state, self.schema)
        type(self).inits += 1

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        for _ in rows:
            before = self._count.get()
            count = 1 if before is None else before[0] + 1
            self._count.update((count,))
            yield key[0], count

    def close(self) -> None:
        type(self).closes += 1


class OtherSchema(Count):
    schema = "n string"
    inits = closes = 0


class OtherName(Count):
    state = "total"
    inits = closes = 0


class Wider(Count):
    schema = "n long"
    inits = closes = 0


class Failing(Count):
    def init(self, handle: Any) -> None:
        raise OSError("no route to the database")


class Unmade(Count):
    def __init__(self) -> None:
        raise OSError("no licence")


def job(sink: Outside, processor: type[Count]) -> Job:
    job = Job("counts")
    job.source(words()).key_by(lambda w: w).transform_with_state(processor).sink(sink)
    return job


EXPECTED = sorted(
    (word, n + 1) for word, count in Counter(words().records).items() for n in range(count)
)


@pytest.mark.parametrize(
    ("changed", "error", "told"),
    [
        (OtherSchema, StateSchemaError, "state 'count' of operator 'process'"),
        (OtherName, StateSchemaError, "'count', as the checkpoint has it"),
        (Failing, UserFunctionError, "no route to the database"),
        (Unmade, UserFunctionError, "no licence"),
    ],
)
async def test_the_running_job_goes_on_when_a_changed_one_is_refused(
    changed: type[Count], error: type[TidelogError], told: str
) -> None:
    store, sink, settings = MemoryStore(), Outside(), config()
    Count.inits = Count.closes = changed.inits = changed.closes = 0
    environment = effects()
    first = JobRunner(job(sink, Count), store, settings, environment)
    running = asyncio.ensure_future(first.run())
    await environment.clock.sleep(2.2)
    assert not running.done()
    before = set(store._objects)
    second = JobRunner(job(Outside(), changed), store, settings, environment)
    with pytest.raises(error, match=told):
        await second.run()
    assert second.generation is None
    assert set(store._objects) == before
    result = await running
    assert result.checkpoints > 2
    assert sorted(sink.records) == EXPECTED
    assert changed.closes == changed.inits, "what was opened on trial is closed again"


@pytest.mark.parametrize("parallelism", [1, 3])
async def test_a_start_that_fits_takes_over_and_closes_all_it_has_opened(parallelism: int) -> None:
    store, sink = MemoryStore(), Outside()
    Count.inits = Count.closes = Wider.inits = Wider.closes = 0
    environment = effects()
    first = JobRunner(job(sink, Count), store, config(), environment)
    running = asyncio.ensure_future(first.run())
    await environment.clock.sleep(2.2)
    second = JobRunner(job(sink, Wider), store, config(parallelism=parallelism), environment)
    await second.run()
    await asyncio.gather(running, return_exceptions=True)
    assert sorted(sink.records) == EXPECTED
    assert Count.inits == Count.closes == 2
    assert Wider.inits == Wider.closes == parallelism + 1
