"""A changed state is taken when all that is stored can be read, and refused with the reason."""

from typing import Any

import pytest

from tests.unit.state.conftest import Bench
from tidelog.checkpoint.manifest import StateInfo
from tidelog.errors import StateSchemaError
from tidelog.runtime.operators.spans import WindowSpan
from tidelog.runtime.operators.window import RecordsWindow
from tidelog.state.handles.keyed import ValueHandle
from tidelog.state.registry import StateRegistry
from tidelog.state.schema.evolution import objection
from tidelog.state.schema.schema import parse_schema
from tidelog.state.stored_states import named_state, stored_states


def info(*schema: str, kind: str = "value", ttl: int | None = None) -> StateInfo:
    return StateInfo(0, "state", kind, tuple(parse_schema(text).schema for text in schema), ttl)


@pytest.mark.parametrize(
    ("old", "new", "stored", "read"),
    [
        ("a int", "a int, b string", (1,), (1, None)),
        ("a int", "a int, b string, c array<int>", (1,), (1, None, None)),
        ("a tinyint", "a bigint", (-7,), (-7,)),
        ("a int", "a double", (2,), (2.0,)),
        ("a float", "a double", (0.1,), (0.1,)),
        ("a int, b string", "a bigint, b string, c int", (None, "x"), (None, "x", None)),
        ("a array<int>", "a array<bigint>", ([1, None],), ([1, None],)),
        ("m map<int,int>", "m map<bigint,bigint>", ({1: 2},), ({1: 2},)),
        ("s struct<x:int,y:int>", "s struct<x:bigint,y:int>", ((1, 2),), ((1, 2),)),
        ("d decimal(10,2)", "d decimal(12,2)", None, None),
        ("s varchar(3)", "s varchar(9)", ("abc",), ("abc",)),
        ("s varchar(3)", "s string", ("abc",), ("abc",)),
    ],
)
@pytest.mark.parametrize("kind", ["value", "list"])
def test_what_can_still_be_read_is_taken_and_read(
    old: str, new: str, stored: Any, read: Any, kind: str
) -> None:
    assert objection(info(old, kind=kind), info(new, kind=kind)) is None
    if stored is not None:
        before, after = parse_schema(old), parse_schema(new)
        value = after.decode(before.encode(before.check(stored)))
        assert value == read
        assert list(map(type, value)) == list(map(type, read))
        # What was read can be stored again.
        assert after.decode(after.encode(after.check(value))) == read


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("a int", "b int", "'b' stands where 'a' was"),
        ("a int, b int", "b int, a int", "'b' stands where 'a' was"),
        ("a int", "b int, a int", "'b' stands where 'a' was"),
        ("a int, b int", "a int", "'b' is missing"),
        ("a bigint", "a int", "'a' was bigint and is int"),
        ("a bigint", "a double", "'a' was bigint and is double"),
        ("a double", "a float", "'a' was double and is float"),
        ("a string", "a int", "'a' was string and is int"),
        ("a string", "a varchar(3)", "is string\\(3\\)"),
        ("a varchar(3)", "a varchar(2)", "is string\\(2\\)"),
        ("a array<bigint>", "a array<int>", "is array<int>"),
        ("a array<int>", "a int", "is int"),
        ("m map<int,int>", "m map<double,int>", "is map<double,int>"),
        ("s struct<x:int>", "s struct<x:int,y:int>", "is struct<x:int,y:int>"),
        ("s struct<x:int>", "s struct<y:int>", "is struct<y:int>"),
        ("d decimal(10,2)", "d decimal(10,3)", "is decimal\\(10,3\\)"),
        ("d decimal(10,2)", "d decimal(9,2)", "is decimal\\(9,2\\)"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason_and_the_state(
    old: str, new: str, reason: str
) -> None:
    registry = StateRegistry("operator", [info(old)])
    changed = info(new)
    with pytest.raises(StateSchemaError, match=reason) as refused:
        registry.register("state", changed.kind, changed.schema)
    assert "state 'state' of operator 'operator'" in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "allowed"),
    [
        ("k int", "k bigint", True),
        ("k float", "k double", True),
        ("k int", "k double", False),
        ("k int", "k int, l int", False),
        ("k array<int>", "k array<double>", False),
    ],
)
def test_a_maps_keys_change_only_where_equal_keys_stay_equal_bytes(
    old: str, new: str, allowed: bool
) -> None:
    before, after = info(old, "v int", kind="map"), info(new, "v int, w int", kind="map")
    assert (objection(before, after) is None) == allowed
    if allowed:
        key = (1,) if "int" in old else (1.5,)
        assert parse_schema(old).encode(key) == parse_schema(new).encode(key)


def window(schema: tuple[str, ...]) -> StateInfo:
    return StateInfo(7, "windows", "window-aggregate", schema, None)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (info("a int"), info("a int", kind="list"), "the kind was value and is list"),
        (info("a int", ttl=1000), info("a int", ttl=5), None),
        (info("a int"), info("a int", ttl=1000), "has a TTL now"),
        (info("a int", ttl=1000), info("a int"), "no TTL any more"),
        (window(("msgpack", "size 5 ms")), window(("msgpack", "size 6 ms")), "became"),
    ],
)
def test_kinds_times_to_live_and_spans_of_windows_are_compared_too(
    old: StateInfo, new: StateInfo, reason: str | None
) -> None:
    found = objection(old, new)
    assert found is None if reason is None else reason in (found or "")


def test_windows_that_share_nothing_are_stored_as_ever() -> None:
    name, kind, schema = RecordsWindow.state(WindowSpan(60_000, 60_000))
    stored = StateInfo(7, name, kind, ("msgpack", "size 60000 ms, slide 60000 ms"), None)
    assert StateRegistry("counts", [stored]).register(name, kind, schema).id == 7


def test_a_widened_state_is_widened_again_over_its_oldest_values() -> None:
    registry = StateRegistry("operator", [info("a int")])
    registry.register("state", "value", ("a bigint, b string",))
    assert registry.infos()[0].schema == ("a bigint, b string",)
    with pytest.raises(StateSchemaError, match="'b' is missing"):
        registry.register("state", "value", ("a bigint",))
    first, third = parse_schema("a int"), parse_schema("a bigint, b string, c double")
    assert third.decode(first.encode((5,))) == (5, None, None)


QUOTED = "`user id` int, `x, y` struct<`a b`:int,`c:d`:array<struct<`e<f`:int>>,`st``r`:string>"


def test_names_in_quotes_are_read_from_what_is_stored(bench: Bench) -> None:
    ValueHandle(bench.backend, "places", QUOTED).update((1, (2, [(3,)], "x")))
    bench.backend.flush()
    states = stored_states(bench.backend, bench.backend.registry.infos())
    shown = named_state(states, "places").state
    assert isinstance(shown, ValueHandle) and shown.get() == (1, (2, [(3,)], "x"))
