"""Keys and values whose type the program has changed are refused, by what a checkpoint knows."""

import re
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict

import msgspec
import pytest

import tidelog
from tests.support import pipelines
from tests.support.depth import more_in_depth, one_by_one
from tests.support.pipelines import Outside, Portions, acted_on, config, words
from tests.support.pressure import checkpoints
from tidelog import Source, StateSchemaError
from tidelog.checkpoint.manifest import encode_entry
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore

Key = Callable[[Any], Any]


class Counted(TypedDict):
    n: int


COUNT = {"value_of": lambda _: 1, "combine": lambda a, b: a + b}


def keyed(
    source: Source, key: Key = str, change: Key = lambda record: record, **declared: Any
) -> tuple[tidelog.Job, tidelog.KeyedStream]:
    """All records have one time: windows are open as long as there is data."""
    job = tidelog.Job("job")
    return job, job.source(source).map(change).event_time(lambda _: 5).key_by(key, **declared)


def counts(
    source: Source, sink: Outside, key: Key = str, declared: Any = None, **aggregate: Any
) -> tidelog.Job:
    job, stream = keyed(source, key, **(declared or {}))
    stream.aggregate(**{"name": "count", **COUNT, **aggregate}).sink(sink)
    return job


def windows(
    source: Source, sink: Outside, key: Key = str, declared: Any = None, **window: Any
) -> tidelog.Job:
    job, stream = keyed(source, key, **(declared or {}))
    counted = stream.window(tidelog.Tumbling(1_000), name="count")
    counted.aggregate(**{**COUNT, **window}).map(lambda r: (r[0], r[2])).sink(sink)
    return job


def records(source: Source, sink: Outside, change: Key, **options: Any) -> tidelog.Job:
    job, stream = keyed(source, lambda _: "all", change)
    windows = stream.window(tidelog.Tumbling(1_000))
    windows.records(lambda k, s, r: (k, s, len(r)), **options).sink(sink)
    return job


def stopped(
    job: tidelog.Job, store: MemoryStore, savepoint: str = "halt", at: float = 5.2, **settings: Any
) -> None:
    """Run the job half way and stop it with a savepoint."""
    acted_on(job, store, lambda runner: runner.stop(savepoint), at=at, settings=config(**settings))


def run(job: tidelog.Job, store: MemoryStore, **settings: Any) -> None:
    pipelines.run(job, store, config(**settings))


def expected(source: Portions, key: Key = str) -> Counter[Any]:
    return Counter(map(key, source.records))


@pytest.mark.parametrize("parallelism", more_in_depth([2], [1, 2]))
@pytest.mark.parametrize(
    ("before", "after", "old", "new"),
    [
        (str, lambda w: (w,), "str", "tuple[str]"),
        (lambda w: (w,), str, "tuple[str]", "str"),
        (len, lambda w: float(len(w)), "int", "float"),
        (lambda w: (w, 1), lambda w: (w, 1, 1), "tuple[str, int]", "tuple[str, int, int]"),
        (lambda w: (w, 1), lambda w: (1, w), "tuple[str, int]", "tuple[int, str]"),
        (lambda w: (w, (1,)), lambda w: (w, ("a",)), "tuple[str, tuple[int]]", "tuple[str]"),
        (str.encode, str, "bytes", "str"),
        (lambda w: tidelog.Row(word=w), lambda w: tidelog.Row(word=1), "tuple[str]", "tuple[int]"),
        (lambda w: tidelog.Row(word=w), lambda w: (w, w), "tuple[str]", "tuple[str, str]"),
        (lambda w: w == "w0", lambda w: int(w == "w0"), "bool", "int"),
    ],
)
def test_a_key_of_another_type_is_refused_with_both_and_nothing_of_it_is_stored(
    before: Key, after: Key, old: str, new: str, parallelism: int
) -> None:
    store, sink, source = MemoryStore(), Outside(), words()
    stopped(counts(source, sink, before), store, parallelism=parallelism)
    with pytest.raises(StateSchemaError) as refused:
        run(counts(source, sink, after), store, parallelism=parallelism)
    told = str(refused.value)
    assert "keys of operator 'count'" in told
    assert f"expected {old}, as the checkpoint has them" in told
    assert new.removesuffix("]") in told
    assert "key_type=" in told and "migrate=function" in told
    assert {c.operators[-1].key_types for c in checkpoints(store)} == {(old,)}
    # Nothing is lost: the old function goes on.
    run(counts(source, sink, before), store, parallelism=parallelism)
    assert dict(sink.records) == expected(source, before)


VALUES: list[tuple[Key, Key, str, str]] = [
    (lambda _: 1, lambda _: "1", "int", "str"),
    (lambda w: w, lambda w: [w], "str", "list[str]"),
    (lambda w: [1], lambda w: [w], "list[int]", "list[str]"),
    (lambda w: {"n": 1}, lambda w: 1, "dict[str, int]", "int"),
    (lambda w: {"n": 1}, lambda w: {"n": "1"}, "dict[str, int]", "dict[str, str]"),
    (lambda w: {w: 1}, lambda w: {1: 1}, "dict[str, int]", "dict[int, int]"),
    (lambda w: 1.5, lambda w: b"1", "float", "bytes"),
]


@one_by_one(job=[counts, windows], change={f"{v[2]} to {v[3]}": v for v in VALUES})
def test_a_value_of_another_type_is_refused_with_both(
    job: Callable[..., tidelog.Job], change: tuple[Key, Key, str, str]
) -> None:
    before, after, old, new = change
    store, sink, source = MemoryStore(), Outside(), words()
    stopped(job(source, sink, value_of=before, combine=lambda a, b: b), store)
    with pytest.raises(StateSchemaError) as refused:
        run(job(source, sink, value_of=after, combine=lambda a, b: b), store)
    told = str(refused.value)
    assert f"expected {old}, as the checkpoint has them; found {new}" in told
    assert f"value_type={' | '.join(sorted([old, new]))}" in told
    assert f"value_type={new}, migrate=function" in told
    run(job(source, sink, value_of=before, combine=lambda a, b: b), store)
    assert dict(sink.records) == {key: before(key) for key in expected(source)}


TEXTS = {"value_type": dict[str, str], "migrate": lambda d: {"n": str(d["n"])}}
DICTS: dict[str, tuple[Key, dict[str, Any]]] = {
    "more fields": (lambda w: {"n": 2, "seen": [w]}, {}),
    "of a class": (lambda w: {"n": 2, "seen": w}, {"value_type": dict}),
    "of a typed class": (lambda w: Counted(n=2), {"value_type": Counted}),
    "none": (lambda w: {"n": None}, {}),
    "another number": (lambda w: {"n": 0.5}, {}),
    "no field": (lambda w: {}, {}),
    "a union": (lambda w: {"n": "2"}, {"value_type": dict[str, int] | dict[str, str]}),
    "a union of fields": (lambda w: {"n": "2"}, {"value_type": dict[str, int | str]}),
    "migrated": (lambda w: {"n": "2"}, TEXTS),
}


@one_by_one(job=[counts, windows], change=DICTS)
def test_dicts_may_get_fields_and_declared_types(
    job: Callable[..., tidelog.Job], change: tuple[Key, dict[str, Any]]
) -> None:
    after, options = change
    store, sink, source = MemoryStore(), Outside(), words()
    stopped(job(source, sink, value_of=lambda w: {"n": 1}, combine=lambda a, b: b), store)
    changed = {"value_of": after, "combine": lambda a, b: b, **options}
    run(job(source, sink, **changed), store)
    found = dict(sink.records)
    assert found.keys() == expected(source).keys()
    for word, value in found.items():
        assert value in ({"n": 1}, {"n": "1"}, after(word))


class Tagged(NamedTuple):
    word: str
    tags: list[str] | dict[str, str] | None = None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (lambda w: tidelog.Row(word=w), lambda w: tidelog.Row(word=w, tags=[w])),
        (lambda w: tidelog.Row(word=w, tags=[w]), lambda w: tidelog.Row(word=w, tags={"of": w})),
        (Tagged, lambda w: Tagged(w, [w])),
        (lambda w: Tagged(w, [w]), lambda w: Tagged(w, {"of": w})),
        (lambda w: (w, 1), lambda w: (w, 1, [w])),
    ],
)
def test_rows_and_tuples_may_get_fields_of_new_types(before: Key, after: Key) -> None:
    store, sink, source = MemoryStore(), Outside(), words()
    stopped(records(source, sink, before), store)
    run(records(source, sink, after), store)
    assert sink.records == [("all", 0, len(source.records))]


def test_what_the_error_says_of_rows_may_be_declared() -> None:
    store, sink, source = MemoryStore(), Outside(), words()
    stopped(records(source, sink, lambda w: tidelog.Row(word=w)), store)

    def changed(word: str) -> tidelog.Row:
        return tidelog.Row(word=[word])

    with pytest.raises(StateSchemaError) as refused:
        run(records(source, sink, changed), store)
    said = re.search(r"keep both with records\(..., record_type=(.*?)\);", str(refused.value))
    assert said is not None and said[1] == "Row[list] | Row[str]"
    run(records(source, sink, changed, record_type=eval(said[1], vars(tidelog))), store)
    assert sink.records == [("all", 0, len(source.records))]


@pytest.mark.parametrize("kind", [Any, object, dict[str, Any], list[object]])
def test_a_declared_type_that_no_value_is_of_is_refused_where_it_is_written(kind: Any) -> None:
    with pytest.raises(tidelog.ConfigError, match=r"Any|object"):
        counts(words(), Outside(), value_type=kind)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (lambda w: (w, 1), lambda w: (w, None)),
        (lambda w: (w, None), lambda w: (w, 1)),
        (str, lambda w: None if w == "w0" else w),
        (lambda w: None, str),
    ],
)
def test_a_missing_part_of_a_key_is_no_change_of_its_type(before: Key, after: Key) -> None:
    store, sink, source = MemoryStore(), Outside(), words()
    stopped(counts(source, sink, before), store)
    run(counts(source, sink, after), store)
    assert sum(count for _, count in sink.records) == len(source.records)


def mixed(word: str) -> Any:
    """Keys of several types, of which the first half of the data has only one."""
    return int(word[1:]) if word > "w4" else word


@pytest.mark.parametrize("key_type", [str | int, tuple[str, ...] | int | str])
def test_a_declared_union_takes_types_that_the_checkpoint_has_not_seen(key_type: Any) -> None:
    store, sink = MemoryStore(), Outside()
    source = Portions({"one": ["w1"] * 80 + ["w5"] * 80})
    declared = {"key_type": key_type}
    stopped(counts(source, sink, mixed, declared), store)
    assert checkpoints(store)[-1].operators[-1].key_types == ("str",)
    run(counts(source, sink, mixed, declared), store)
    assert dict(sink.records) == {"w1": 80, 5: 80}
    with pytest.raises(StateSchemaError, match=r"expected int, as declared; found str"):
        run(counts(source, Outside(), mixed, {"key_type": int}), MemoryStore())


def test_types_that_are_declared_otherwise_are_refused_before_the_running_job_is_fenced() -> None:
    store, sink, source = MemoryStore(), Outside(), words()
    stopped(counts(source, sink), store)
    before = dict(store._objects)
    with pytest.raises(StateSchemaError, match=r"expected str.*tuple\[str\] declared.*migrate="):
        run(counts(source, sink, lambda w: (w,), {"key_type": tuple[str]}), store)
    with pytest.raises(StateSchemaError, match=r"expected int.*found str declared"):
        run(counts(source, sink, value_type=str), store)
    assert store._objects == before


def test_a_checkpoint_of_a_release_that_kept_no_types_takes_those_of_the_data() -> None:
    store, sink, source = MemoryStore(), Outside(), words()
    stopped(counts(source, sink), store)
    newest = checkpoints(store)[-1]
    *others, count = newest.operators
    assert (count.key_types, count.states[0].types) == (("str",), ("int",))
    states = tuple(msgspec.structs.replace(info, types=()) for info in count.states)
    count = msgspec.structs.replace(count, key_types=(), states=states)
    older = msgspec.structs.replace(newest, operators=(*others, count))
    store._objects[object_names.checkpoint(newest.slot)] = encode_entry(older)
    assert not {b'"key_types"', b'"types"'} & {*re.findall(rb'"\w+"', encode_entry(older))}
    run(counts(source, sink), store)
    assert dict(sink.records) == expected(source)
    count = checkpoints(store)[-1].operators[-1]
    assert (count.key_types, count.states[0].types) == (("str",), ("int",))


def test_a_change_behind_keys_of_the_old_type_is_seen_too() -> None:
    """In one run, in one buffer, as a named tuple: no key escapes the look at its type."""
    for late in [("a", 1), tidelog.Row(x="a", y=1), 1.5, (("a",),), (("a", 1),)]:
        early = Portions({"one": [("a",)] * 100})
        store, sink = MemoryStore(), Outside()
        key = lambda record: tuple(record) if isinstance(record, list) else record  # noqa: E731
        stopped(counts(early, sink, key), store)
        mixed_source = Portions({"one": [("a",)] * 103 + [late] * 20})
        with pytest.raises(StateSchemaError, match=r"expected tuple\[str\]"):
            run(counts(mixed_source, sink, key), store)
