"""What the golden values of states hold, and the script that wrote them."""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from tests.golden.golden_in_flight import Colour, Event, Order, Pair
from tests.golden.writing import write_missing
from tidelog.state.objects.values import ObjectEncoding
from tidelog.state.schema.row import Row

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
    "values_v1.bin": lambda: msgspec.msgpack.encode(ObjectEncoding("golden").encode_many(VALUES))
}


if __name__ == "__main__":
    write_missing(FILES)
