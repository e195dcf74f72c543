"""Values of every type that state keeps, drawn; and whether two are equal and of the same types."""

import dataclasses
import enum
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from datetime import UTC, timedelta, timezone
from fractions import Fraction
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
from hypothesis import strategies as st

from tidelog import Row


class Colour(enum.Enum):
    RED = "r"
    BLUE = (1, 2)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: Any
    y: Any = 0


@dataclass
class Order:
    item: Any
    tags: Any = ()


@dataclass(frozen=True, slots=True)
class Frozen:
    held: Any


class Event(msgspec.Struct):
    at: Any
    data: Any = None


ZONES = st.sampled_from(
    [None, UTC, timezone(timedelta(hours=-3, minutes=30)), ZoneInfo("Asia/Tokyo")]
)

HASHABLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(codec=None), max_size=5),
    st.binary(max_size=5),
    st.decimals().filter(lambda number: not number.is_snan()),
    st.datetimes(timezones=ZONES),
    st.dates(),
    st.times(timezones=ZONES),
    st.timedeltas(),
    st.uuids(),
    st.builds(Fraction, st.integers(), st.integers(1)),
    st.sampled_from([*Colour, *Level, Right.READ | Right.WRITE, Right(0)]),
    st.tuples(st.integers(), st.text(max_size=3)),
    st.frozensets(st.integers(), max_size=3),
    st.builds(Point, st.integers(), st.text(max_size=3)),
    st.builds(Frozen, st.integers()),
    st.builds(lambda a, b: Row(a=a, b=b), st.integers(), st.text(max_size=3)),
)

VALUES = st.recursive(
    st.one_of(HASHABLE, st.binary(max_size=4).map(bytearray)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.lists(inner, max_size=3).map(deque),
        st.sets(HASHABLE, max_size=3),
        st.dictionaries(HASHABLE, inner, max_size=3),
        st.dictionaries(HASHABLE, inner, max_size=3).map(OrderedDict),
        st.dictionaries(HASHABLE, inner, max_size=3).map(lambda held: defaultdict(list, held)),
        st.lists(st.text(max_size=2), max_size=3).map(Counter),
        st.builds(Point, inner, inner),
        st.builds(Order, inner, inner),
        st.builds(Event, inner, inner),
        st.builds(lambda a, b: Row(first=a, second=b), inner, inner),
    ),
    max_leaves=6,
)


def form_of(value: Any) -> Any:
    """What two values have in common exactly if they are equal and of the same types, inside too.

    Floats by their bits: NaN is like itself, and -0.0 is not 0.0.
    """
    kind = type(value)
    parts: Any
    if isinstance(value, float):
        parts = struct.pack(">d", value)
    elif isinstance(value, set | frozenset):
        parts = sorted(map(repr, map(form_of, value)))
    elif isinstance(value, dict):
        parts = [(form_of(key), form_of(held)) for key, held in value.items()]
        parts.append(getattr(value, "default_factory", None))
    elif isinstance(value, list | tuple | deque):
        parts = [getattr(value, "_fields", None), *map(form_of, value)]
    elif dataclasses.is_dataclass(value):
        parts = [form_of(getattr(value, each.name)) for each in dataclasses.fields(value)]
    elif isinstance(value, msgspec.Struct):
        parts = list(map(form_of, msgspec.structs.astuple(value)))
    else:
        parts = repr(value)
    return kind, parts
