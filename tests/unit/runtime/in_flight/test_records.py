"""Records of every type that readers and operators yield come back as they were; bytes that
somebody forged build data at most, and run nothing."""

import enum
import functools
import os
import sys
from collections import Counter, deque, namedtuple
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import SplitResult
from zoneinfo import ZoneInfo

import msgspec
import pytest

from tests.support.values import Level, Right
from tidelog import Row, SerializationError, TidelogError
from tidelog.state.objects import encoding as form
from tidelog.state.objects.classes import RecordTypes
from tidelog.state.objects.encoding import Shape, decode_records, encode_records

BASIC = RecordTypes()
T = TypeVar("T")

ran: list[str] = []
"""What code of a record's type ran."""


class Pair(NamedTuple):
    left: Any
    right: Any = 0


Old = namedtuple("Old", "a b")


@dataclass
class Order:
    item: Any
    price: Decimal = Decimal(1)
    tags: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        ran.append("post_init")

    @functools.cached_property
    def doubled(self) -> Decimal:
        return self.price * 2


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float = 0.0


@dataclass
class Tagged(Order):
    tag: str = ""


@dataclass
class Box(Generic[T]):
    held: T


class Event(msgspec.Struct):
    at: int
    data: Any = None


class Open(msgspec.Struct, dict=True):
    at: int

    @functools.cached_property
    def doubled(self) -> int:
        return self.at * 2


class Frozen(msgspec.Struct, frozen=True, kw_only=True, tag="f", omit_defaults=True):
    name: str
    more: list[int] = []
    other: int


class Colour(enum.Enum):
    RED = "r"
    CRIMSON = "r"
    BLUE = (1, 2)


class Checked(msgspec.Struct):
    value: int

    def __post_init__(self) -> None:
        ran.append("struct")


@dataclass
class Closing:
    path: str

    def __del__(self) -> None:
        ran.append("del")


@dataclass
class Reduced:
    value: int

    def __reduce__(self) -> Any:
        return Reduced, (self.value,)


@dataclass
class Stately:
    value: int

    def __setstate__(self, state: Any) -> None:
        ran.append("setstate")


class Plain:
    def __init__(self, value: Any) -> None:
        ran.append("init")
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plain) and self.value == other.value

    __hash__ = None  # type: ignore[assignment]


class Words(list[str]):
    """Has contents and attributes."""


class Fancy(str):
    __slots__ = ()


def through(records: list[Any], types: RecordTypes = BASIC) -> list[Any]:
    return decode_records(*encode_records(records, types), types)


def assert_same(found: Any, expected: Any) -> None:
    assert found == expected
    assert repr(found) == repr(expected)
    assert type(found) is type(expected)


SAMPLES = [
    Row("bare", 2.5, None),
    Row("a", "b")("short"),
    Row(inner=Row(list=[Row(x=1)], map={"a": (1,)})),
    Pair(Pair((), []), Row(a=1)),
    Old(1, b"x"),
    Order("tea", Decimal("1.50"), ["x"]),
    Tagged("tea", tag="t"),
    Point(1.0),
    Box[int](3),
    Event(1, [Event(2, {"a": Event(3)})]),
    Frozen(name="n", other=4),
    Colour.CRIMSON,
    Level.HIGH,
    Right.READ | Right.WRITE,
    {Colour.RED: Level.LOW, Point(1.0): Pair(1, 2), (1, "a"): {Pair(3, 4)}},
    [2**70, -(10**4000), "\udfff", {"k\ud801": 2**65}],
    [True, 1, 1.0, -0.0, 1j],
    [range(2**65, 0, -3), slice(1, None)],
    datetime(2026, 10, 25, 2, 30, 1, 7, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    deque([1, (2,)], 5),
]
"""Besides the values of `tests/support/values.py`, which a property has in flight."""


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda value: type(value).__qualname__)
def test_a_record_comes_back_as_it_was(sample: Any) -> None:
    (back,) = through([sample])
    if sample == sample:
        assert_same(back, sample)
    assert repr(back) == repr(sample)
    (inner,) = through([[sample, (sample,)]])
    assert repr(inner) == repr([sample, (sample,)])


def test_no_code_of_a_data_type_runs_when_it_is_read() -> None:
    shapes, data = encode_records([Order("tea")], BASIC)
    ran.clear()
    assert decode_records(shapes, data, BASIC)[0].item == "tea"
    assert ran == []


class Custom(Exception):
    """Holds arguments and attributes."""


NAMED = [
    Checked(1),
    Closing("x"),
    Reduced(3),
    Plain({"deep": [Plain(1)]}),
    Words(["a", "b"]),
    Fancy("text"),
    PurePosixPath("/a/b"),
    SplitResult("http", "a", "/b", "", ""),
    Frozen(name="n", other=1),
    Order("named as well"),
]


@pytest.mark.parametrize("sample", NAMED, ids=lambda value: type(value).__qualname__)
def test_other_types_are_stored_when_the_job_names_them(sample: Any) -> None:
    types = RecordTypes([type(sample), PurePosixPath])
    (back,) = through([sample], types)
    assert back == sample and type(back) is type(sample)


@pytest.mark.parametrize(
    "sample",
    [
        *(sample for sample in NAMED if type(sample) not in (Frozen, Order)),
        *(Stately(1), print, Plain, Custom("x"), object()),
    ],
    ids=lambda value: type(value).__qualname__,
)
def test_other_types_are_refused_when_it_does_not_and_the_message_says_what_to_do(
    sample: Any,
) -> None:
    with pytest.raises(SerializationError, match=r"record_types"):
        through([(1, sample)])


def test_a_class_within_a_function_is_refused_until_the_job_names_it() -> None:
    @dataclass
    class Local:
        a: int

    with pytest.raises(SerializationError, match=r"Local.*not found by this name.*record_types"):
        through([Local(1)])
    assert through([Local(1)], RecordTypes([Local])) == [Local(1)]


def test_a_struct_with_attributes_besides_its_fields_and_cached_properties_is_refused() -> None:
    event: Any = Open(1)
    assert event.doubled == 2
    assert through([event]) == [Open(1)]
    event.note = "none of its fields"
    with pytest.raises(SerializationError, match="Open: a struct that has more than its fields"):
        through([event])


# --- types that changed


def reread(monkeypatch: pytest.MonkeyPatch, record: Any, now: type) -> Any:
    """A record as a job reads it in which its type is another one."""
    shapes, data = encode_records([record], BASIC)
    now.__module__, now.__qualname__ = __name__, type(record).__qualname__
    monkeypatch.setattr(sys.modules[__name__], type(record).__qualname__, now)
    return decode_records(shapes, data, RecordTypes())[0]


def test_fields_with_defaults_may_be_added(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True, slots=True)
    class NewPoint:
        x: float
        y: float
        z: list[int] = field(default_factory=list)

    class NewPair(NamedTuple):
        middle: Any = 5
        left: Any = 0
        right: Any = 0

    class NewEvent(msgspec.Struct):
        at: int
        data: Any
        more: list[int] = []

    assert reread(monkeypatch, Point(1.0, 2.0), NewPoint) == NewPoint(1.0, 2.0, [])
    assert reread(monkeypatch, Pair(1, 2), NewPair) == NewPair(5, 1, 2)
    assert reread(monkeypatch, Event(1, 2), NewEvent) == NewEvent(1, 2, [])


def test_a_field_that_init_does_not_take_is_added_with_its_default_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @dataclass(frozen=True, slots=True)
    class NewPoint:
        x: float
        y: float
        seen: int = field(init=False, default=0)
        words: Counter[str] = field(init=False, default_factory=Counter)

    assert reread(monkeypatch, Point(1.0, 2.0), NewPoint) == NewPoint(1.0, 2.0)


def test_a_property_in_place_of_a_field_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class NewBox:
        held: Any = property(lambda self: self._held)

        def __init__(self, held: Any) -> None:
            self._held = held

    now = dataclass(init=False)(NewBox)
    stored = NewBox(3)
    monkeypatch.setattr(sys.modules[__name__], "NewBox", now, raising=False)
    now.__module__, now.__qualname__ = __name__, "NewBox"
    (back,) = through([stored])
    assert back.held == 3 and vars(back) == {"_held": 3}


def test_fields_that_are_gone_or_have_no_value_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True, slots=True)
    class NewPoint:
        x: float

    class NewPair(NamedTuple):
        left: Any
        right: Any
        third: Any

    class NewEvent(msgspec.Struct):
        at: int

    for record, now in ((Point(1.0), NewPoint), (Pair(1), NewPair), (Event(1), NewEvent)):
        with pytest.raises(SerializationError, match=rf"{type(record).__qualname__}.*the fields"):
            reread(monkeypatch, record, now)


def test_a_field_of_another_name_is_refused_and_an_attribute_that_is_none_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @dataclass
    class NewBox(Generic[T]):
        content: T | None = None

    with pytest.raises(SerializationError, match=r"Box with the fields held, .*; found content"):
        reread(monkeypatch, Box(3), NewBox)
    order = Order("tea")
    order.__dict__["note"] = order.doubled
    (back,) = through([order])
    assert vars(back) == vars(order)


def test_a_class_of_another_kind_or_without_a_member_is_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class NewPoint(msgspec.Struct):
        x: float
        y: float

    class NewColour(enum.Enum):
        RED = "r"

    with pytest.raises(SerializationError, match=r"Point as a dataclass, .*; found a struct"):
        reread(monkeypatch, Point(1.0), NewPoint)
    with pytest.raises(SerializationError, match="Colour with the member 'BLUE'"):
        reread(monkeypatch, Colour.BLUE, NewColour)


# --- what somebody forged

TYPED = form.TYPED


def forged(shape: Shape, *values: Any) -> Any:
    data = msgspec.msgpack.encode([[TYPED, 0, *values]])
    return decode_records([shape], data, BASIC)


@pytest.mark.parametrize(
    "shape",
    [
        Shape("class", "os", "system"),
        Shape("class", "subprocess", "Popen"),
        Shape("dataclass", "subprocess", "Popen"),
        Shape("class", "builtins", "eval"),
        Shape("named-tuple", "urllib.parse", "SplitResult", ("scheme",)),
        Shape("class", __name__, "Plain"),
        Shape("dataclass", __name__, "Plain", ("value",)),
        Shape("dataclass", __name__, "Closing", ("path",)),
        Shape("dataclass", __name__, "Stately", ("value",)),
        Shape("class", __name__, "Stately"),
        Shape("struct", __name__, "Checked", ("value",)),
        Shape("struct", __name__, "Order", ("item",)),
        Shape("class", __name__, "Order", ("item",)),
        Shape("enum", __name__, "Order"),
        Shape("dataclass", __name__, "Order.doubled.func", ()),
        Shape("dataclass", __name__, "os.system", ()),
        Shape("dataclass", "antigravity", "fly", ()),
        Shape("dataclass", "this", "s", ()),
    ],
    ids=lambda shape: f"{shape.kind} {shape.module}.{shape.name}",
)
def test_a_forged_type_is_refused_and_nothing_is_run_or_imported(shape: Shape) -> None:
    ran.clear()
    before = set(sys.modules)
    assert "antigravity" not in before and os is not None
    with pytest.raises((TidelogError, ValueError)):
        forged(shape, "touch", "/tmp/never")
    assert ran == []
    assert set(sys.modules) == before
