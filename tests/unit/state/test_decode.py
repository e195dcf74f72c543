"""Rows come out as what the user put in; what is not understood keeps its bytes."""

import base64
import datetime
import enum
import json
from decimal import Decimal
from operator import add
from typing import Any, NamedTuple

import msgspec
import pytest

import tidelog
from tests.unit.state.conftest import Bench
from tidelog.checkpoint.manifest import StateInfo
from tidelog.effects import SystemClock
from tidelog.ids import KeyGroup
from tidelog.runtime.channels.messages import KeyedBatch
from tidelog.runtime.operators.operator import OperatorContext
from tidelog.runtime.operators.spans import WindowSpan
from tidelog.runtime.operators.tumbling_window import aggregate_window
from tidelog.runtime.operators.window import AggregateWindow, RecordsWindow
from tidelog.state.handles.keyed import ListHandle, MapHandle, ValueHandle
from tidelog.state.key_groups import encode_key
from tidelog.state.objects.values import ObjectEncoding
from tidelog.state.schema.decode import DecodedRow, RowDecoder
from tidelog.state.timed_records import TimedRecords


def flushed(bench: Bench) -> list[DecodedRow]:
    """The changes of one flush, decoded."""
    bench.log.batches.clear()
    bench.backend.flush()
    decoder = RowDecoder(bench.backend.registry.infos())
    return [
        decoder.decode(key, value)
        for batch in bench.log.batches
        for key, value in zip(batch.keys, batch.values, strict=True)
    ]


def row(kind: str, state: str, **fields: Any) -> DecodedRow:
    return DecodedRow(**{"key_group": KeyGroup(3), "key": "k", **fields}, state=state, kind=kind)


def test_a_value_has_its_fields_names_and_a_delete_none(bench: Bench) -> None:
    bench.backend.use_encoded_key(encode_key(("tide", 3)))
    total = bench.value("count long, note string", "total")
    total.update((7, None))
    (found,) = flushed(bench)
    assert (found.state, found.kind, found.encoding) == ("total", "value", "decoded")
    assert (found.key, found.value) == (["tide", 3], {"count": 7, "note": None})
    total.clear()
    (found,) = flushed(bench)
    assert (found.key, found.value) == (["tide", 3], None)


def test_columns_and_fields_of_structs_have_names_that_are_quoted_in_ddl(bench: Bench) -> None:
    fields = "m map<string,struct<`größe`:int>>, s struct<`a b`:int,`1``st`:string>"
    state = bench.value(f"`user-id` string, `größe` int, `a``b c` map<string,int>, {fields}")
    state.update(("x", 2, {}, {"k": (2,)}, (1, "x")))
    (found,) = flushed(bench)
    columns = {"user-id": "x", "größe": 2, "a`b c": {}}
    assert found.value == {**columns, "m": {"k": (2,)}, "s": (1, "x")}


def test_a_ttl_shows_when_values_expire_and_a_list_row_its_position(bench: Bench) -> None:
    ValueHandle(bench.backend, "seen", "at long", ttl_ms=500).update((7,))
    ListHandle(bench.backend, "items", "n int", ttl_ms=500).appendList([(1,), (2,)])
    items = [{"n": 1}, {"n": 2}]
    assert flushed(bench) == [
        row("value", "seen", value={"at": 7}, expires_ms=1_500),
        row("list", "items", entry=0, value=items, expires_ms=[1_500, 1_500]),
    ]


@pytest.mark.parametrize("key", ["tide", 5, -1, 1.5, True, None, b"x" * 300, ("a", (1, 2)), "ä"])
def test_a_map_row_is_told_apart_into_key_and_entry(bench: Bench, key: Any) -> None:
    letters = MapHandle(bench.backend, "letters", "letter string, n int", "times int")
    bench.backend.use_encoded_key(encode_key(key))
    letters.updateValue(("t", 70_000), (2,))
    (found,) = flushed(bench)
    assert found.key == json.loads(msgspec.json.encode(key))
    assert found.entry == {"letter": "t", "n": 70_000}
    assert found.value == {"times": 2}


TEN_SECONDS = WindowSpan(10_000, 10_000)
FIRST_RECORDS = {"start_ms": 10_000, "position": 0}


@pytest.mark.parametrize(
    ("window", "wanted"),
    [
        (
            aggregate_window(TEN_SECONDS, lambda record: record, add),
            row("window-aggregate", "windows", entry={"start_ms": 10_000}, value=3),
        ),
        (
            RecordsWindow(TEN_SECONDS, lambda key, start, records: records),
            row("window-records", "windows", entry=FIRST_RECORDS, value=[1, 2]),
        ),
    ],
)
def test_a_window_shows_its_start_and_what_it_holds(
    bench: Bench, window: AggregateWindow | RecordsWindow, wanted: DecodedRow
) -> None:
    window.open(OperatorContext(SystemClock(), bench.backend))
    group, key = bench.backend.key_prefix, bench.backend.key
    window.process(KeyedBatch([1, 2], [12_000, 14_000], [key] * 2, [group] * 2))
    assert [found for found in flushed(bench) if found.kind != "timers"] == [wanted]


AGGREGATE = StateInfo(0, "aggregate", "aggregate", ("msgpack",))
SPLITS = StateInfo(0, "$splits", "splits", ("msgpack",))
OWN = b"\x00\x03\x00\x00" + encode_key("tide")


@pytest.mark.parametrize(
    ("info", "stored", "shown"),
    [
        (AGGREGATE, {"sum": 3}, {"sum": 3}),
        (SPLITS, [False, 120], {"done": False, "position": 120}),
        (SPLITS, [True, 120, 7], {"done": True, "position": 120, "latest": 7}),
    ],
)
def test_a_value_without_a_schema_is_shown_as_it_is(
    info: StateInfo, stored: Any, shown: Any
) -> None:
    found = RowDecoder([info]).decode(OWN, msgspec.msgpack.encode(stored))
    assert (found.key_group, found.key, found.value) == (3, "tide", shown)


def test_a_batch_of_a_join_is_shown_with_the_keys_of_its_records() -> None:
    bench = Bench()
    records = TimedRecords(bench.backend, "left", "by time", "none", batched=True)
    ebb, tide = (b"\0\x03" + encode_key(key) for key in ("ebb", "tide"))
    records.add([(ebb, 7, 70, {"sum": 3}), (tide, 7, 71, {"sum": 4})])
    bench.backend.flush()
    ((row, value),) = bench.table.scan(b"", None)
    found = RowDecoder(bench.backend.registry.infos()).decode(row, value)
    assert (found.key_group, found.state, found.key) == (3, "left-batches", None)
    assert found.value == [
        {"key": "ebb", "time_ms": 70, "record": {"sum": 3}},
        {"key": "tide", "time_ms": 71, "record": {"sum": 4}},
    ]


@pytest.mark.parametrize(
    ("info", "key", "value"),
    [
        (None, OWN, b"\x01"),
        (StateInfo(0, "s", "window", ("count bigint",)), OWN, b"\x01"),
        (StateInfo(0, "s", "value", ("count complex",)), OWN, b"\x01"),
        (StateInfo(0, "s", "value", ("count bigint",)), OWN, b"\xc1"),
        (StateInfo(0, "s", "value", ("count bigint",), 5), OWN, b"short"),
        (StateInfo(0, "s", "map", ("k string", "v string")), OWN, b"\x91\xa1v"),
        (StateInfo(0, "s", "timers", ("time bigint",)), OWN[:6], b""),
        (AGGREGATE, OWN[:-1], b"\x01"),
        (StateInfo(0, "w", "window-aggregate", ("msgpack", "any")), OWN, b"\x01"),
        (StateInfo(0, "w", "window-records", ("msgpack", "any")), OWN + bytes(8), b"\x01"),
        (StateInfo(0, "left", "timed-records", ("msgpack", "any")), OWN, b"\x01"),
        (StateInfo(0, "left-batches", "timed-batches", ("any",)), OWN, b"\x01"),
        (SPLITS, OWN, b"\x01"),
    ],
)
def test_what_is_not_understood_keeps_its_bytes(
    info: StateInfo | None, key: bytes, value: bytes
) -> None:
    found = RowDecoder([info] if info else []).decode(key, value)
    assert found.encoding == "base64"
    assert base64.b64decode(found.key) == key[4:]
    assert base64.b64decode(found.value) == value
    assert found.state == (info.name if info else None)


class Colour(enum.Enum):
    RED = "r"


class Point(NamedTuple):
    x: int
    y: Any = None


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ((1, {2}), [1, [2]]),
        (Decimal("1.20"), "1.20"),
        (Colour.RED, "RED"),
        (Point(1, Colour.RED), {"x": 1, "y": "RED"}),
        ([tidelog.Row(a=1, b=b"x")], [{"a": 1, "b": "eA=="}]),
        ({Point(1)}, [{"x": 1, "y": None}]),
        ({("a", 1): datetime.date(2026, 1, 2)}, {'["a",1]': "2026-01-02"}),
        (2**70, 2**70),
        (["\ud800"], None),  # JSON does not have it: its bytes are kept
    ],
)
def test_a_value_of_a_class_is_shown_by_its_fields_also_where_the_class_is_gone(
    value: Any, shown: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = ObjectEncoding("values").encode(value)
    for kind in (Colour, Point):
        monkeypatch.delitem(globals(), kind.__name__)
    row = RowDecoder([AGGREGATE]).decode(OWN, stored)
    if shown is None:
        assert (row.value, row.encoding) == (base64.b64encode(stored).decode(), "base64")
    else:
        assert (json.loads(json.dumps(row.value)), row.encoding) == (shown, "decoded")
