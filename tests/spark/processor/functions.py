"""Functions that look for what may be different on Spark.

Invariant: imported by Spark's Python workers too, by this module's name.
"""

import datetime
from collections.abc import Iterator
from typing import Any

from tidelog.state.processor import StatefulProcessor
from tidelog.state.schema.row import Row

HOUR_MS = 3_600_000
TYPES = (
    "b boolean, t tinyint, s smallint, i int, l bigint, d double, c string, x binary, day date, "
    "many array<string>, inner struct<n:int,x:binary>, nested array<struct<k:string,v:double>>"
)
VALUES: list[tuple[Any, ...]] = [
    (
        *(True, -1, 300, 70_000, 1 << 40, 0.1, "é\u0000x", b"\x00\xff"),
        datetime.date(1, 2, 28),
        ["a", None],
        (1, b"y"),
        [("k", 1.5), ("l", None)],
    ),
    (None,) * 12,
    (False, 127, -300, 0, -1, -0.0, "", b"", datetime.date(2026, 2, 28), [], (None, None), []),
]
NUMBERS = (300, -5, 7, 1 << 40, 128)


class Keeper(StatefulProcessor):
    """Writes every type into every kind of state, and in the next batch says what is wrong."""

    def init(self, handle: Any) -> None:
        self.values = [handle.getValueState(f"value{at}", TYPES) for at in range(len(VALUES))]
        self.list = handle.getListState("list", TYPES)
        self.map = handle.getMapState("map", TYPES, TYPES)
        self.order = handle.getMapState("order", "n bigint", "n bigint")
        self.lasts = handle.getValueState("lasts", "n int", HOUR_MS)
        self.expires = handle.getValueState("expires", "n int", 1)
        self.top = handle.getReducingState("top", "n bigint", max)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        given = list(rows)
        if given[0].batch == 0:
            self._write()
        else:
            seen = [row.inner.n for row in given]
            checks = {**self._differences(), "key": repr(key), "rows": repr(seen)}
            yield from (Row(what=what, found=found, k=key[0]) for what, found in checks.items())
            self._empty()

    def _write(self) -> None:
        for state, value in zip(self.values, VALUES, strict=True):
            state.update(value)
        self.list.appendList(VALUES)
        self.list.appendValue(VALUES[0])
        for value in VALUES:
            self.map.updateValue(value, value)
        for number in NUMBERS:
            self.order.updateValue((number,), (number,))
            self.top.add((number,))
        self.lasts.update((1,))
        self.expires.update((1,))

    def _differences(self) -> dict[str, str]:
        """Where what is read is not what was written: by its text, which shows types too."""
        pairs = {
            "values": ([state.get() for state in self.values], VALUES),
            "list": (list(self.list.get()), [*VALUES, VALUES[0]]),
            "map": ([self.map.getValue(value) for value in VALUES], VALUES),
            "keys": (sorted(map(repr, self.map.keys())), sorted(map(repr, VALUES))),
            "order": ([n for (n,), _ in self.order.iterator()], [7, 128, 300, 1 << 40, -5]),
            "lasts": (self.lasts.get(), (1,)),
            "expires": (self.expires.get(), None),
            "top": (self.top.get(), (1 << 40,)),
        }
        return {
            what: "" if repr(found) == repr(wanted) else f"{found!r} is not {wanted!r}"
            for what, (found, wanted) in pairs.items()
        }

    def _empty(self) -> None:
        """Changes while reading, and empty lists, which Spark alone does not take."""
        for (number,), value in self.order.iterator():
            self.order.removeKey((number,))
            self.order.updateValue((number + 1,), value)
        for element in self.list.get():
            self.list.appendValue(element)
        self.list.put([])
        self.list.appendList([])
        self.values[0].clear()


class Chain(StatefulProcessor):
    """Every timer that fires deletes the next one, and says which are left."""

    def init(self, handle: Any) -> None:
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            for at in range(1, 6):
                self.handle.registerTimer(row.at + at)
            self.handle.registerTimer(row.at + 1_000_000)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        time = expiredTimerInfo.getExpiryTimeInMs()
        self.handle.deleteTimer(time + 1)
        yield {"left": list(self.handle.listTimers()), "fired": time, "k": key[0]}
