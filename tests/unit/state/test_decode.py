"""Rows come out as what the user put in; what is not understood keeps its bytes."""

import base64
import datetime
import enum
import itertools
import json
from decimal import Decimal
from operator import add
from typing import Any, NamedTuple

import msgspec
import pytest

import tidelog
from tidelog.changelog.change import ChangeBatch
from tidelog.checkpoint.manifest import StateInfo
from tidelog.effects import SystemClock
from tidelog.ids import KeyGroup
from tidelog.runtime.channels.messages import KeyedBatch
from tidelog.runtime.operators.operator import OperatorContext
from tidelog.runtime.operators.tumbling_window import aggregate_window
from tidelog.runtime.operators.window import AggregateWindow, RecordsWindow, WindowSpan
from tidelog.state.backend import KeyedBackend
from tidelog.state.handles.keyed import ValueState
from tidelog.state.handles.list import ListState
from tidelog.state.handles.map import MapState
from tidelog.state.handles.timers import Timers
from tidelog.state.key_groups import KeyGroupRange, encode_key, first_value, key_group
from tidelog.state.log import NoLog
from tidelog.state.objects.values import ObjectEncoding
from tidelog.state.registry import StateRegistry
from tidelog.state.schema.decode import DecodedRow, RowDecoder
from tidelog.table.memory import MemoryTable

NOW_MS = 1_000


class Changes(NoLog):
    """Keeps what was flushed, deletes included."""

    def __init__(self) -> None:
        self.batches: list[ChangeBatch] = []

    def submit(self, batch: ChangeBatch) -> None:
        self.batches.append(batch)


def backend() -> KeyedBackend:
    return KeyedBackend(
        registry=StateRegistry("op"),
        key_groups=8,
        owned=KeyGroupRange(KeyGroup(0), KeyGroup(7)),
        table=MemoryTable(),
        log=Changes(),
        now_ms=lambda: NOW_MS,
        monotonic=lambda: 0.0,
    )


def flushed(states: KeyedBackend) -> list[DecodedRow]:
    """The changes of one flush, decoded."""
    log = states.log
    assert isinstance(log, Changes)
    log.batches.clear()
    states.flush()
    decoder = RowDecoder(states.registry.infos())
    return [
        decoder.decode(key, value)
        for batch in log.batches
        for key, value in zip(batch.keys, batch.values, strict=True)
    ]


def row(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"state": name, "kind": kind, "entry": None, "expires_ms": None, **fields}


def shown(rows: list[DecodedRow]) -> list[dict[str, Any]]:
    assert all(each.encoding == "decoded" for each in rows)
    asked = ("state", "kind", "key", "entry", "value", "expires_ms")
    return [{name: getattr(each, name) for name in asked} for each in rows]


def test_a_value_has_its_fields_names() -> None:
    states = backend()
    value = ValueState(states, "total", "count long, note string")
    states.use_key(("tide", 3))
    value.update((7, None))
    wanted = row("value", "total", key=["tide", 3], value={"count": 7, "note": None})
    assert shown(flushed(states)) == [wanted]


def test_values_without_a_json_type_become_text() -> None:
    states = backend()
    value = ValueState(states, "v", "raw binary, day date, tags array<string>")
    states.use_key(b"\x00\xff")
    value.update((b"\x01", datetime.date(2024, 2, 29), ["a"]))
    (found,) = flushed(states)
    assert found.key == "AP8="
    assert found.value == {"raw": "AQ==", "day": "2024-02-29", "tags": ["a"]}


def test_a_ttl_shows_when_the_value_expires() -> None:
    states = backend()
    value = ValueState(states, "seen", "at long", ttl_ms=500)
    states.use_key("tide")
    value.update((7,))
    wanted = row("value", "seen", key="tide", value={"at": 7}, expires_ms=NOW_MS + 500)
    assert shown(flushed(states)) == [wanted]


def test_a_list_row_shows_its_elements_and_position() -> None:
    states = backend()
    items = ListState(states, "items", "n int", ttl_ms=500)
    states.use_key("tide")
    items.appendList([(1,), (2,)])
    wanted = row("list", "items", key="tide", entry=0, value=[{"n": 1}, {"n": 2}])
    assert shown(flushed(states)) == [{**wanted, "expires_ms": [1_500, 1_500]}]


@pytest.mark.parametrize("key", ["tide", 5, -1, 1.5, True, None, b"x" * 300, ("a", (1, 2)), "ä"])
def test_a_map_row_is_told_apart_into_key_and_entry(key: Any) -> None:
    states = backend()
    letters = MapState(states, "letters", "letter string, n int", "times int")
    states.use_key(key)
    letters.updateValue(("t", 70_000), (2,))
    (found,) = flushed(states)
    assert found.key == json.loads(msgspec.json.encode(key))
    assert found.entry == {"letter": "t", "n": 70_000}
    assert found.value == {"times": 2}


def test_a_timer_is_shown_by_both_of_its_rows() -> None:
    states = backend()
    timers = Timers(states)
    states.use_key("tide")
    timers.register(-5)
    assert shown(flushed(states)) == [
        row("timers", "$timers-by-time", key="tide", entry=-5, value=None),
        row("timers", "$timers-by-key", key="tide", entry=-5, value=None),
    ]


def windowed(window: AggregateWindow | RecordsWindow) -> list[DecodedRow]:
    """The rows of windows of ten seconds that hold records at 12 and 14 s, without their timers."""
    states = backend()
    window.open(OperatorContext("op", 0, 1, SystemClock(), states))
    key = encode_key("tide")
    group = key_group(key, states.key_groups).to_bytes(2, "big")
    window.process(KeyedBatch([1, 2], [12_000, 14_000], [key] * 2, [group] * 2))
    return [found for found in flushed(states) if found.kind != "timers"]


TEN_SECONDS = WindowSpan(10_000, 10_000)


def test_an_aggregated_window_shows_its_start_and_value() -> None:
    found = windowed(aggregate_window(TEN_SECONDS, lambda record: record, add))
    entry = {"start_ms": 10_000}
    assert shown(found) == [row("window-aggregate", "windows", key="tide", entry=entry, value=3)]


def test_a_window_of_records_shows_its_start_and_them() -> None:
    found = windowed(RecordsWindow(TEN_SECONDS, lambda key, start, records: records))
    entry = {"start_ms": 10_000, "position": 0}
    wanted = row("window-records", "windows", key="tide", entry=entry, value=[1, 2])
    assert shown(found) == [wanted]


def test_a_delete_has_a_key_and_no_value() -> None:
    states = backend()
    value = ValueState(states, "total", "count long")
    states.use_key("tide")
    value.update((1,))
    flushed(states)
    value.clear()
    assert shown(flushed(states)) == [row("value", "total", key="tide", value=None)]


AGGREGATE = StateInfo(0, "aggregate", "aggregate", ("msgpack",))
SPLITS = StateInfo(1, "$splits", "splits", ("msgpack",))
OWN = b"\x00\x03\x00\x00" + encode_key("tide")


def test_an_aggregate_is_any_msgpack_value() -> None:
    found = RowDecoder([AGGREGATE]).decode(OWN, msgspec.msgpack.encode({"sum": 3}))
    assert (found.key_group, found.key, found.value) == (3, "tide", {"sum": 3})


def test_a_split_shows_its_position() -> None:
    key = b"\x00\x03\x00\x01" + encode_key("part-0")
    found = RowDecoder([SPLITS]).decode(key, msgspec.msgpack.encode([False, 120]))
    assert (found.key, found.value) == ("part-0", {"done": False, "position": 120})


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
        (StateInfo(0, "$splits", "splits", ("msgpack",)), OWN, b"\x01"),
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


VALUES: list[Any] = [
    *(None, True, 0, 127, 128, 70_000, 1 << 40, -1, -33, -200, -70_000, -(1 << 40), 1.5),
    *("", "a" * 31, "a" * 32, "a" * 300, "a" * 70_000, b"", b"b" * 300, b"b" * 70_000),
    *([], [1, [2, {}]], list(range(16)), list(range(70_000)), {"k": [1]}),
    dict.fromkeys(map(str, range(70_000))),
    *(msgspec.msgpack.Ext(5, b"x" * size) for size in (1, 2, 4, 8, 16, 3, 300, 70_000)),
]


def test_a_msgpack_value_says_itself_where_it_ends() -> None:
    for before, behind in itertools.product(VALUES, [b"", b"\x00", b"rest"]):
        data = msgspec.msgpack.encode(before)
        assert first_value(data + behind) == (data, behind)


def test_a_msgpack_value_cut_short_is_refused() -> None:
    for value in VALUES:
        data = msgspec.msgpack.encode(value)
        for cut in {0, 1, len(data) // 2, len(data) - 1} - {len(data)}:
            with pytest.raises(ValueError, match="cut short"):
                first_value(data[:cut])


def test_the_byte_that_msgpack_never_uses_is_refused() -> None:
    with pytest.raises(ValueError, match="0xc1"):
        first_value(b"\xc1")


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
    ],
)
def test_a_value_of_a_class_is_shown_by_its_fields_also_where_the_class_is_gone(
    value: Any, shown: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = ObjectEncoding("values").encode(value)
    for kind in (Colour, Point):
        monkeypatch.delitem(globals(), kind.__name__)
    decode = RowDecoder([StateInfo(0, "aggregate", "aggregate", ("msgpack",))]).decode
    row = decode(bytes(4) + encode_key("k"), stored)
    assert (json.loads(json.dumps(row.value)), row.encoding) == (shown, "decoded")


def test_text_that_json_does_not_have_keeps_its_bytes() -> None:
    decode = RowDecoder([StateInfo(0, "aggregate", "aggregate", ("msgpack",))]).decode
    stored = ObjectEncoding("values").encode(["\ud800"])
    row = decode(bytes(4) + encode_key("k"), stored)
    assert (row.value, row.encoding) == (base64.b64encode(stored).decode(), "base64")
