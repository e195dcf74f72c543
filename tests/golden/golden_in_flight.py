"""What the golden block of in-flight data and the golden values of states hold."""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from tidelog.ids import SeqNo
from tidelog.runtime.channels.messages import Batch, Watermark
from tidelog.runtime.in_flight.capture import ChannelData, ChannelId
from tidelog.runtime.in_flight.codec import encode
from tidelog.state.objects.classes import RecordTypes
from tidelog.state.objects.values import ObjectEncoding
from tidelog.state.schema.row import Row


@dataclass(frozen=True)
class Order:
    """A user's dataclass."""

    item: str
    price: Decimal


class Pair(NamedTuple):
    """A user's named tuple."""

    left: Any
    right: Any


class Event(msgspec.Struct):
    """A user's struct."""

    at: datetime
    data: Any


class Colour(Enum):
    """A user's enum."""

    RED = 1


class Parcel:
    """A user's class, which the job names."""

    def __init__(self, weight: int) -> None:
        self.weight = weight

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Parcel) and other.weight == self.weight

    __hash__ = None  # type: ignore[assignment]


TYPES = RecordTypes([Parcel])

PARTS = [
    ChannelData(
        ChannelId("count", 1, 2, 3, at_producer=False),
        [
            Batch([Row(word="tide", count=3), Row(word="ebb", count=None)], [1_700_000_000_000, 5]),
            Watermark(-7),
        ],
    ),
    ChannelData(
        ChannelId("count", 1, 2, 3, at_producer=True),
        [
            Batch(
                [
                    Order("tea", Decimal("1.50")),
                    Pair((1, [2.5]), {"a": {1}, 2: frozenset()}),
                    Event(
                        datetime(2026, 10, 25, 2, tzinfo=ZoneInfo("Europe/Berlin"), fold=1), b"x"
                    ),
                    Event(datetime(2026, 1, 2, tzinfo=UTC), timedelta(days=-1)),
                    [Colour.RED, 2**70, "\ud800", UUID(int=7), Fraction(1, 3), 1j, range(3)],
                    Parcel(5),
                ]
            )
        ],
    ),
]


VALUES: list[Any] = [
    *(None, True, -7, 2.5, "tide", b"log", [1, [None]], {"a": {1: [2]}}),
    *(2**70, "\ud800", (1, (2,)), {3}, frozenset({4}), bytearray(b"x"), deque([1], 2)),
    *(Counter("aa"), OrderedDict(a=1), defaultdict(list, {"a": [1]}), {("a", 1): ()}),
    *(date(2026, 1, 2), datetime(2026, 1, 2, 3, tzinfo=UTC), timedelta(days=-1)),
    *(Decimal("1.20"), UUID(int=7), Colour.RED, Order("tea", Decimal(3)), Pair(1, [Colour.RED])),
    *(Event(datetime(2026, 1, 2), None), Row(word="tide", n=1)),
    [Row(word="tide", n=1), Row(word="log", n=2)],
]

FILES: dict[str, Callable[[], bytes]] = {
    "block_in_flight_v1.bin": lambda: encode(PARTS, TYPES, SeqNo(11)).blocks[0].data,
    "values_v1.bin": lambda: msgspec.msgpack.encode(ObjectEncoding("golden").encode_many(VALUES)),
}
