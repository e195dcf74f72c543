"""A start that is refused leaves the running job alone."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.pipelines import Outside, config, effects, run, words
from tidelog import Job, JobRunner, RestoreError, StatefulProcessor
from tidelog.checkpoint.manifest import OperatorPiece, OperatorState, StateInfo, SubtaskState
from tidelog.errors import ConfigError, StateSchemaError, TidelogError, UserFunctionError
from tidelog.ids import SeqNo
from tidelog.runtime.restore.assign import rechain
from tidelog.runtime.subtasks.vertices import Vertex, compile_job
from tidelog.state.key_groups import range_of
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
            count = (self._count.get() or (0,))[0] + 1
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


async def test_a_second_call_of_run_is_refused_while_the_first_one_goes_on() -> None:
    sink = Outside()
    runner = JobRunner(job(sink, Count), MemoryStore(), config(), effects())
    first = asyncio.ensure_future(runner.run())
    await runner.effects.clock.sleep(2.2)
    with pytest.raises(ConfigError, match=r"job 'counts'; expected one call of run\(\) at a time"):
        await runner.run()
    await first
    assert sorted(sink.records) == EXPECTED
    assert (await runner.run()).already_complete


def test_one_processor_for_several_subtasks_is_refused_and_so_is_one_in_place_of_a_class() -> None:
    one, sink = Count(), Outside()
    job = Job("counts")
    keyed = job.source(words()).key_by(lambda w: w)
    keyed.transform_with_state(lambda: one).sink(sink)
    with pytest.raises(ConfigError, match="found one object for several subtasks"):
        run(job, MemoryStore(), config(parallelism=2))
    run(job, MemoryStore(), config(parallelism=1))
    assert sorted(sink.records) == EXPECTED
    with pytest.raises(ConfigError, match=r"processor of process; expected a class"):
        keyed.transform_with_state(one)  # type: ignore[arg-type]


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


GROUPS = 8
COUNT = StateInfo(0, "aggregate", "aggregate", ("msgpack",))


def vertices(parallelism: int) -> list[Vertex]:
    """At parallelism 1 source and map share a task, and so do the aggregate and the sink; at
    another one the map is kept apart."""
    job = Job("job")
    counted = job.source(words(), parallelism=1).map(str).key_by(str)
    counted.count(name="aggregate").sink(Outside(), parallelism=1)
    return compile_job(job, parallelism, chain_heads=() if parallelism == 1 else ("map",))


def stored(name: str, parallelism: int, *states: StateInfo, **fields: Any) -> OperatorState:
    def subtask(index: int) -> SubtaskState:
        owned = range_of(index, GROUPS, parallelism)
        own = {key: value(index) for key, value in fields.items()}
        return SubtaskState(index, owned.first, owned.last, SeqNo(9), "memory", **own)

    return OperatorState(name, GROUPS, states, tuple(map(subtask, range(parallelism))))


def transactions(operator: OperatorState) -> list[tuple[bytes, ...]]:
    return [state.transactions for state in operator.subtasks]


def test_a_sink_that_gets_tasks_of_its_own_takes_its_transactions_along() -> None:
    chained = stored("aggregate", 1, COUNT, transactions=lambda i: (b"tx",))
    found = rechain({"aggregate": chained}, vertices(2))
    assert transactions(found["sink"]) == [(b"tx",)]
    assert transactions(found["aggregate"]) == [()]
    assert found["aggregate"].states == (COUNT,)


def test_a_sink_that_joins_the_tasks_before_it_takes_its_transactions_along() -> None:
    operators = {
        "aggregate": stored("aggregate", 2, COUNT),
        "sink": stored("sink", 3, transactions=lambda i: (b"tx-%d" % i,)),
    }
    found = rechain(operators, vertices(1))
    assert set(found) == {"aggregate"}
    assert transactions(found["aggregate"]) == [(b"tx-0", b"tx-2"), (b"tx-1",)]


def test_state_of_an_operator_that_is_not_the_first_any_more_is_refused() -> None:
    with pytest.raises(RestoreError, match=r"state of operator 'map'.*the first of a chain"):
        rechain({"map": stored("map", 2, COUNT)}, vertices(1))


@pytest.mark.parametrize(("name", "parallelism"), [("source", 2), ("map", 1)])
def test_operator_state_that_would_lose_its_operator_is_refused(
    name: str, parallelism: int
) -> None:
    held = stored(
        name, 1, operator_state=lambda i: (OperatorPiece("map", "rules", "broadcast", ()),)
    )
    with pytest.raises(RestoreError, match=f"operator state of operator '{name}'"):
        rechain({name: held}, vertices(parallelism))
