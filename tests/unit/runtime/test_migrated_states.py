"""States of a processor whose schema a job changes: `migrate=` makes new values of stored ones."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tidelog
from tests.support.depth import in_pairs
from tests.support.pipelines import Outside, acted_on, config, effects, words
from tests.support.pressure import checkpoints
from tests.support.workers import with_workers
from tests.unit.runtime.test_changed_types import expected, keyed, run, stopped
from tidelog import Row, StatefulProcessor, StatefulProcessorHandle, StateSchemaError
from tidelog.catalog.audit import audit
from tidelog.errors import ConfigError, TidelogError, UserFunctionError
from tidelog.storage.memory import MemoryStore

SOURCE = words(length=60)
HOUR_MS = 3_600_000


class Counts(StatefulProcessor):
    """Counts the rows of a key in every kind of state, and emits the counts at the end."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.value = handle.getValueState("value", "n int")
        self.list = handle.getListState("list", "n int", HOUR_MS)
        self.map = handle.getMapState("map", "word string", "n int", HOUR_MS)
        self.reduced = handle.getReducingState("reduced", "n int", lambda a, b: (a[0] + b[0],))
        self.aggregated = handle.getAggregatingState(
            "aggregated",
            "n int",
            create=lambda: (0,),
            add=lambda total, n: (total[0] + n,),
            result=lambda total: total[0],
        )

    def one(self, n: int) -> tuple[Any, ...]:
        """A value of the schema."""
        return (n,)

    def number(self, value: Any) -> int:
        """The count that a value of the schema has."""
        return 0 if value is None else int(value[0])

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Any], timerValues: tidelog.TimerValues
    ) -> Iterator[Any]:
        for _ in rows:
            self.value.update(self.one(self.number(self.value.get()) + 1))
            self.list.appendValue(self.one(1))
            self.map.updateValue(("w",), self.one(self.number(self.map.getValue(("w",))) + 1))
            self.reduced.add(self.one(1))
            self.aggregated.add(1)
        self.handle.registerTimer(100)
        return iter(())

    def handleExpiredTimer(
        self, key: tuple[Any, ...], timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        counts = {
            self.number(self.value.get()),
            sum(map(self.number, self.list.get())),
            self.number(self.map.getValue(("w",))),
            self.number(self.reduced.get()),
            self.aggregated.get(),
        }
        yield key, counts.pop() if len(counts) == 1 else counts


def renamed(old: Row) -> tuple[str, str]:
    """The field `n` of a stored value, which becomes a text, after a field that is new."""
    return "counted", str(old.n)


class Renamed(Counts):
    """The same counts; all states have another schema."""

    migrate = staticmethod(renamed)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        schema, migrate = "kind string, total string", self.migrate
        self.value = handle.getValueState("value", schema, migrate=migrate)
        self.list = handle.getListState("list", schema, HOUR_MS, migrate=migrate)
        self.map = handle.getMapState("map", "word string", schema, HOUR_MS, migrate=migrate)

        def add(a: tuple[str, str], b: tuple[str, str]) -> tuple[str, str]:
            return self.one(int(a[1]) + int(b[1]))

        self.reduced = handle.getReducingState("reduced", schema, add, migrate=migrate)
        self.aggregated = handle.getAggregatingState(
            "aggregated",
            schema,
            create=lambda: self.one(0),
            add=lambda total, n: self.one(int(total[1]) + n),
            result=lambda total: int(total[1]),
            migrate=migrate,
        )

    def one(self, n: int) -> tuple[Any, ...]:
        return "counted", str(n)

    def number(self, value: Any) -> int:
        return 0 if value is None else int(value[1])


class RenamedByHand(Renamed):
    """As the program is once all is migrated: without the function."""

    migrate = None  # type: ignore[assignment]


def counted(sink: Outside, processor: Callable[[], Any], key: Any = str, **key_by: Any) -> Any:
    job, stream = keyed(SOURCE, key, **key_by)
    stream.transform_with_state(processor, time_mode="event", name="count").sink(sink)
    return job


def problems(store: MemoryStore) -> Any:
    return asyncio.run(audit(store, deep=True)).problems


def values(sink: Outside) -> dict[Any, Any]:
    assert len(sink.records) == len(dict(sink.records))
    return {key[0]: n for key, n in sink.records}


@in_pairs(table=["memory", "rocksdb"], changelog=[True, False], parallelism=[2, 3], workers=[1, 2])
def test_a_renamed_field_keeps_its_values_in_every_kind_of_state(
    table: str, changelog: bool, parallelism: int, workers: int
) -> None:
    store, sink = MemoryStore(), Outside()
    settings = {"table": table, "changelog": changelog}
    stopped(counted(sink, Counts), store, **settings)
    with with_workers(workers):
        stopped(counted(sink, Renamed), store, "again", parallelism=parallelism, **settings)
    stored = {info.name: info.schema[-1] for info in checkpoints(store)[-1].operators[-1].states}
    for name in ("value", "list", "map", "reduced", "aggregated"):
        assert stored[name] == "kind string, total string"
    # From here on nothing is migrated: the function is no longer needed.
    run(counted(sink, RenamedByHand), store, **settings)
    assert values(sink) == expected(SOURCE)
    assert not problems(store)


@pytest.mark.parametrize("at", [0.2, 2.5])
@pytest.mark.parametrize("parallelism", [2, 3])
def test_a_job_that_is_killed_before_or_after_its_first_checkpoint_migrates_each_value_once(
    at: float, parallelism: int
) -> None:
    store, sink = MemoryStore(), Outside()
    stopped(counted(sink, Counts), store)
    settings = config(parallelism=parallelism)
    acted_on(counted(sink, Renamed), store, at=at, settings=settings, crash=True)
    run(counted(sink, Renamed), store)
    assert values(sink) == expected(SOURCE)
    assert not problems(store)


def test_states_and_keys_are_migrated_together_also_from_a_savepoint_elsewhere() -> None:
    old, new, sink = MemoryStore("memory://old"), MemoryStore("memory://new"), Outside()
    stopped(counted(sink, Counts), old)
    job = counted(
        sink, Renamed, lambda w: (w, 1), key_type=tuple[str, int], migrate=lambda w: (w, 1)
    )
    chosen = tidelog.RestoreFrom("halt", old)
    asyncio.run(tidelog.JobRunner(job, new, config(), effects(), restore_from=chosen).run())
    assert values(sink) == expected(SOURCE)
    assert not problems(new)


def test_the_function_gets_the_stored_value_by_the_names_it_was_stored_with() -> None:
    store, sink, seen = MemoryStore(), Outside(), []

    class Watched(Renamed):
        @staticmethod
        def migrate(old: Row) -> tuple[str, str]:
            seen.append(old)
            return renamed(old)

    stopped(counted(sink, Counts), store)
    run(counted(sink, Watched), store)
    assert seen
    assert all(isinstance(old, Row) and old._fields == ("n",) for old in seen)


@pytest.mark.parametrize(
    ("error", "match", "migrate"),
    [
        (UserFunctionError, "ZeroDivisionError", lambda old: 1 / 0),
        (StateSchemaError, "None", lambda old: None),
        (StateSchemaError, "expected a value of its type for each field", lambda old: (1, 2)),
        (StateSchemaError, "expected a value of its type for each field", lambda old: "n"),
        (UserFunctionError, "the row has no field 'm'", lambda old: ("", old.m)),
    ],
)
def test_what_the_function_must_not_return_is_refused_and_nothing_is_changed(
    error: type[TidelogError], match: str, migrate: Any
) -> None:
    store, sink = MemoryStore(), Outside()
    stopped(counted(sink, Counts), store)
    slots = [c.slot for c in checkpoints(store)]
    wrong = type("Wrong", (Renamed,), {"migrate": staticmethod(migrate)})
    with pytest.raises(error, match=match) as refused:
        run(counted(sink, wrong), store)
    assert "migrate= of state 'value' of operator 'count'" in str(refused.value)
    assert [c.slot for c in checkpoints(store)] == slots
    run(counted(sink, Renamed), store)
    assert values(sink) == expected(SOURCE)


def test_without_the_function_the_error_names_it_and_the_running_job_is_not_fenced() -> None:
    store, sink = MemoryStore(), Outside()
    stopped(counted(sink, Counts), store)
    names = set(store._objects)
    with pytest.raises(StateSchemaError, match="a processor can give it migrate="):
        run(counted(sink, RenamedByHand), store)
    assert set(store._objects) == names


class OtherKind(Counts):
    def init(self, handle: StatefulProcessorHandle) -> None:
        handle.getListState("value", "total string", migrate=renamed)


class WithTtl(Counts):
    def init(self, handle: StatefulProcessorHandle) -> None:
        handle.getValueState("value", "total string", HOUR_MS, migrate=renamed)


class OtherMapKey(Counts):
    def init(self, handle: StatefulProcessorHandle) -> None:
        handle.getMapState("map", "id long", "total string", HOUR_MS, migrate=renamed)


class NoFunction(Counts):
    def init(self, handle: StatefulProcessorHandle) -> None:
        handle.getValueState("value", "total string", migrate="total")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("processor", "match"),
    [
        (OtherKind, "the kind was value and is list"),
        (WithTtl, "it has a TTL now"),
        (OtherMapKey, "in the map's keys 'id' stands where 'word' was"),
        (NoFunction, "expected a function from a stored value"),
    ],
)
def test_what_the_function_cannot_change_is_still_refused(processor: Any, match: str) -> None:
    store, sink = MemoryStore(), Outside()
    stopped(counted(sink, Counts), store)
    with pytest.raises((StateSchemaError, ConfigError), match=match):
        run(counted(sink, processor), store)
