"""States on Spark answer as the embedded ones do."""

import inspect
from typing import Any

import pytest

from tests.unit.spark.processor.fake import Handle
from tests.unit.state.conftest import Bench
from tidelog import ConfigError, StatefulProcessorHandle, StateSchemaError
from tidelog.spark.processor.handle import (
    SparkHandle,
    SparkListState,
    SparkMapState,
    SparkValueState,
)
from tidelog.state.handles.keyed import ListHandle, MapHandle, ValueHandle
from tidelog.state.key_groups import encode_key


@pytest.fixture(params=["embedded", "on_spark"])
def handle(request: pytest.FixtureRequest) -> Any:
    """Every test with it holds for both engines."""
    if request.param == "on_spark":
        return SparkHandle(Handle(), "event")
    bench = Bench()
    bench.backend.key, bench.backend.key_prefix = encode_key("a"), b"\x00\x01"
    return StatefulProcessorHandle(bench.backend, "event")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (StatefulProcessorHandle, SparkHandle),
        (ValueHandle, SparkValueState),
        (ListHandle, SparkListState),
        (MapHandle, SparkMapState),
    ],
)
def test_whatever_a_function_may_call_embedded_it_may_call_on_spark(
    ours: type, theirs: type
) -> None:
    calls = {name: call for name, call in vars(ours).items() if not name.startswith("_")}
    methods = {name: call for name, call in calls.items() if inspect.isfunction(call)}
    assert methods
    for name, method in methods.items():
        on_spark = inspect.signature(getattr(theirs, name))
        assert list(on_spark.parameters) == list(inspect.signature(method).parameters), name


def test_a_list_keeps_its_order_and_may_be_changed_while_it_is_read(handle: Any) -> None:
    state = handle.getListState("state", "x binary, n int")
    assert (state.exists(), list(state.get())) == (False, [])
    state.appendList([])
    state.put([])
    assert not state.exists()
    state.appendValue((b"b", 2))
    state.appendList([(b"a", 1), (b"c", 3)])
    for element in state.get():
        state.appendValue(element)
    assert [n for _, n in state.get()] == [2, 1, 3, 2, 1, 3]
    state.put([(b"z", 9)])
    assert list(state.get()) == [(b"z", 9)]
    state.put([])
    assert (state.exists(), list(state.get())) == (False, [])


def test_a_map_comes_in_one_order_and_may_be_changed_while_it_is_read(handle: Any) -> None:
    state = handle.getMapState("state", "n bigint", "x binary")
    assert (state.exists(), list(state.keys())) == (False, [])
    for n in (300, -5, 7, 1 << 40, 128):
        state.updateValue((n,), (b"%d" % n,))
    for (n,), value in state.iterator():
        state.removeKey((n,))
        state.updateValue((n + 1,), value)
    assert list(state.iterator()) == [
        *[((8,), (b"7",)), ((129,), (b"128",)), ((301,), (b"300",))],
        *[(((1 << 40) + 1,), (b"%d" % (1 << 40),)), ((-4,), (b"-5",))],
    ]
    assert list(state.keys()) == [key for key, _ in state.iterator()]
    assert list(state.values()) == [value for _, value in state.iterator()]
    assert (state.getValue((8,)), state.getValue((9,))) == ((b"7",), None)
    assert (state.containsKey((8,)), state.containsKey((9,)), state.exists()) == (True, False, True)
    state.clear()
    assert (state.exists(), list(state.values())) == (False, [])


@pytest.mark.parametrize("value", [("1",), (1 << 31,), (1, 2), (1.5,), 7])
def test_a_value_that_does_not_fit_is_refused(handle: Any, value: Any) -> None:
    values = handle.getValueState("value", "n int")
    elements = handle.getListState("list", "n int")
    entries = handle.getMapState("map", "n int", "n int")
    for write in (
        lambda: values.update(value),
        lambda: elements.appendValue(value),
        lambda: elements.appendList([(1,), value]),
        lambda: elements.put([value]),
        lambda: entries.updateValue((1,), value),
        lambda: entries.updateValue(value, (1,)),
    ):
        with pytest.raises(StateSchemaError, match="schema 'n int'"):
            write()
    assert not (values.exists() or elements.exists() or entries.exists())


def test_reducing_and_aggregating_combine_with_the_functions_they_are_given(handle: Any) -> None:
    top = handle.getReducingState("top", "n int", max)
    mean = handle.getAggregatingState(
        "mean",
        "total bigint, count bigint",
        create=lambda: (0, 0),
        add=lambda held, n: (held[0] + n, held[1] + 1),
        result=lambda held: held[0] / held[1],
    )
    assert (top.get(), mean.get(), top.exists(), mean.exists()) == (None, None, False, False)
    for n in (3, 9, 6):
        top.add((n,))
        mean.add(n)
    assert (top.get(), mean.get()) == ((9,), 6.0)
    top.clear()
    mean.clear()
    assert (top.exists(), mean.exists()) == (False, False)


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ("at timestamp", "time zone"),
        ("at timestamp_ntz", "time zone"),
        ("n float", "32 bits"),
        ("n decimal(10,2)", "scale"),
        ("tags map<string,int>", "order"),
        ("many array<struct<map:int,at:timestamp>>", "time zone"),
        ("many struct<inner:array<float>>", "32 bits"),
        ("name varchar(20)", "without a length"),
    ],
)
def test_a_type_that_spark_would_change_is_refused_by_the_name_of_its_state(
    schema: str, word: str
) -> None:
    for define in (
        lambda handle: handle.getValueState("mine", schema),
        lambda handle: handle.getListState("mine", f"n int, {schema}"),
        lambda handle: handle.getMapState("mine", schema, "n int"),
        lambda handle: handle.getMapState("mine", "n int", schema),
        lambda handle: handle.getReducingState("mine", schema, max),
    ):
        with pytest.raises(ConfigError, match=rf"state 'mine'.*{word}"):
            define(SparkHandle(Handle(), "event"))


def test_spark_gets_columns_that_may_be_null_and_names_as_they_are() -> None:
    spark = Handle()
    handle = SparkHandle(spark, "processing")
    handle.getValueState("value", "`a b` long NOT NULL, map struct<array:int>", 10)
    handle.getMapState("map", "`x``y` string", "n byte")
    handle.getListState("list", "s struct<`a b`:long>")
    assert spark.defined == {
        "value": ("value", "`a b` bigint, `map` struct<array:int>", 10),
        "map": ("map", "`x``y` string", "`n` tinyint", None),
        "list": ("list", "`s` struct<`a b`:bigint>", None),
    }
