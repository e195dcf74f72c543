"""Stored keys and values that a job migrates: by value, in every shape, once."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

import tidelog
from tests.support.depth import in_pairs
from tests.support.pipelines import Outside, config, effects, words
from tests.support.pressure import checkpoints
from tests.support.workers import with_workers
from tests.unit.runtime.test_changed_types import (
    Key,
    counts,
    expected,
    keyed,
    run,
    stopped,
    windows,
)
from tidelog import Source
from tidelog.catalog.audit import audit
from tidelog.checkpoint.manifest import encode_entry
from tidelog.errors import RestoreError, StateSchemaError, UserFunctionError
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore

SOURCE = words(length=60)


def in_tuple(word: Any) -> Any:
    return (word,)


MIGRATED = {"key_type": tuple[str], "migrate": in_tuple}


def kept(source: Source, sink: Outside, key: Key = str, declared: Any = None) -> tidelog.Job:
    job, stream = keyed(source, key, **(declared or {}))
    windows = stream.window(tidelog.Tumbling(1_000), name="count")
    windows.records(lambda key, start, records: (key, len(records))).sink(sink)
    return job


class EveryState(tidelog.StatefulProcessor):
    """Counts in a value, a list, a map and a timer at once."""

    def init(self, handle: tidelog.StatefulProcessorHandle) -> None:
        self.handle = handle
        self.value = handle.getValueState("value", "n long")
        self.list = handle.getListState("list", "n long")
        self.map = handle.getMapState("map", "word string", "n long", 3_600_000)

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Any], timerValues: tidelog.TimerValues
    ) -> Iterator[Any]:
        seen = len(list(rows))
        self.value.update(((self.value.get() or (0,))[0] + seen,))
        self.list.appendList([(1,)] * seen)
        self.map.updateValue(("w",), ((self.map.getValue(("w",)) or (0,))[0] + seen,))
        self.handle.registerTimer(100)
        return iter(())

    def handleExpiredTimer(
        self, key: tuple[Any, ...], timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        counted = {(self.value.get() or (0,))[0], len(list(self.list.get()))}
        counted |= {(self.map.getValue(("w",)) or (0,))[0]}
        yield key, counted.pop() if len(counted) == 1 else counted


def processed(source: Source, sink: Outside, key: Key = str, declared: Any = None) -> tidelog.Job:
    job, stream = keyed(source, key, **(declared or {}))
    stream.transform_with_state(EveryState, time_mode="event", name="count").sink(sink)
    return job


def problems(store: MemoryStore) -> Any:
    return asyncio.run(audit(store, deep=True)).problems


JOBS = [counts, windows, kept, processed]


@in_pairs(
    job=JOBS,
    table=["memory", "rocksdb"],
    changelog=[True, False],
    parallelism=[2, 3],
    workers=[1, 2],
)
def test_migrated_keys_keep_their_state_in_every_kind_of_state(
    job: Callable[..., tidelog.Job], table: str, changelog: bool, parallelism: int, workers: int
) -> None:
    store, sink = MemoryStore(), Outside()
    settings = {"table": table, "changelog": changelog}
    stopped(job(SOURCE, sink), store, **settings)
    before = {c.slot for c in checkpoints(store)}
    with with_workers(workers):
        migrated = job(SOURCE, sink, in_tuple, MIGRATED)
        stopped(migrated, store, "again", parallelism=parallelism, **settings)
    new = [c for c in checkpoints(store) if c.slot not in before]
    assert {types for c in new for types in c.operators[-1].key_types} == {"tuple[str]"}
    # From here on nothing is migrated: the function is no longer needed, nor the declaration.
    run(job(SOURCE, sink, in_tuple), store, **settings)
    words_of = expected(SOURCE, in_tuple)
    assert {tuple(key): n for key, n in sink.records} == words_of
    assert len(sink.records) == len(words_of)
    assert not problems(store)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("job", [counts, windows])
def test_migrated_values_go_on_as_the_new_type(
    job: Callable[..., tidelog.Job], workers: int
) -> None:
    store, sink = MemoryStore(), Outside()
    stopped(job(SOURCE, sink), store)
    text = {
        "value_of": lambda _: "1",
        "combine": lambda a, b: str(int(a) + int(b)),
        "value_type": str,
        "migrate": str,
    }
    with with_workers(workers):
        run(job(SOURCE, sink, **text), store)
    assert dict(sink.records) == {w: str(n) for w, n in expected(SOURCE).items()}
    assert checkpoints(store)[-1].operators[-1].states[-1].types in (("str",), ())
    assert not problems(store)


def test_keys_and_values_are_migrated_together_also_from_a_savepoint_elsewhere() -> None:
    old, new, sink = MemoryStore("memory://old"), MemoryStore("memory://new"), Outside()
    stopped(counts(SOURCE, sink), old)
    job = counts(
        *(SOURCE, sink, in_tuple, MIGRATED),
        value_of=lambda _: [1],
        combine=lambda a, b: [a[0] + b[0]],
        value_type=list[int],
        migrate=lambda n: [n],
    )
    chosen = tidelog.RestoreFrom("halt", old)
    asyncio.run(tidelog.JobRunner(job, new, config(), effects(), restore_from=chosen).run())
    assert {tuple(key): n for key, (n,) in sink.records} == expected(SOURCE, in_tuple)
    assert not problems(new)


def test_a_migration_that_fails_leaves_everything_as_it_was_and_can_be_mended() -> None:
    store, sink = MemoryStore(), Outside()
    stopped(counts(SOURCE, sink), store)
    kept_slots = [c.slot for c in checkpoints(store)]

    def refused(error: type[Exception], match: str, migrate: Callable[[Any], Any]) -> None:
        with pytest.raises(error, match=match):
            run(counts(SOURCE, sink, in_tuple, {**MIGRATED, "migrate": migrate}), store)
        assert [c.slot for c in checkpoints(store)] == kept_slots

    refused(UserFunctionError, "migrate= of key_by before operator 'count'", lambda _: 1 / 0)
    refused(StateSchemaError, r"expected tuple\[str\], as declared; found int", lambda _: 1)
    refused(RestoreError, "a key of its own for every stored key", lambda _: ("one",))
    run(counts(SOURCE, sink, in_tuple, MIGRATED), store)
    assert {tuple(k): n for k, n in sink.records} == expected(SOURCE, in_tuple)


@pytest.mark.parametrize("reached", ["watermark", "advancing"])
def test_keys_do_not_move_to_where_event_time_is_further(reached: str) -> None:
    store, sink = MemoryStore(), Outside()
    stopped(windows(SOURCE, sink), store, parallelism=2)
    newest = checkpoints(store)[-1]
    # As after an unaligned checkpoint whose barriers overtook records of one subtask.
    apart = tuple(
        replace(
            o, subtasks=tuple(replace(s, **{"watermark": 0, reached: s.index}) for s in o.subtasks)
        )
        for o in newest.operators
    )
    store._objects[object_names.checkpoint(newest.slot)] = encode_entry(
        replace(newest, operators=apart)
    )
    slots = set(store._objects)
    with pytest.raises(RestoreError, match="2 event times"):
        run(windows(SOURCE, sink, in_tuple, MIGRATED), store, parallelism=2)
    assert set(store._objects) == slots, "the job that runs is not fenced"
    run(windows(SOURCE, sink), store, parallelism=2)
    assert dict(sink.records) == expected(SOURCE)
