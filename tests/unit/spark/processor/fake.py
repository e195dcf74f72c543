"""A stand-in for pyspark's side of `transformWithState`, without a JVM.

Invariants: it does what Spark does where Spark and the embedded runtime differ. A handle lives for
one batch; a watermark counts from the next batch on; maps and timers come in an order of their own;
structs come back as rows and binary as bytearray; an empty list is refused; all timers of a batch
are read ahead and fire behind its rows.
"""

import datetime
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tidelog.spark.processor.adapter import SparkProcessor

Key = tuple[Any, ...]


class SparkRow(tuple[Any, ...]):
    """A row as pyspark makes it: names in `__fields__`, values by number or name."""

    __fields__: list[str]

    @classmethod
    def of(cls, names: Iterable[str], values: Iterable[Any]) -> "SparkRow":
        row = cls(values)
        row.__fields__ = list(names)
        return row


def stored(value: Any) -> Any:
    """A value as it comes back from the state."""
    if isinstance(value, tuple):
        return SparkRow.of((f"_{at}" for at in range(len(value))), map(stored, value))
    if isinstance(value, list):
        return list(map(stored, value))
    assert isinstance(value, str | int | float | bytes | datetime.date | None)
    return bytearray(value) if isinstance(value, bytes) else value


@dataclass
class Store:
    """The state of a query: what outlives a batch."""

    values: dict[tuple[str, Key], Any] = field(default_factory=dict)
    lists: dict[tuple[str, Key], list[Any]] = field(default_factory=dict)
    maps: dict[tuple[str, Key], dict[Key, Any]] = field(default_factory=dict)
    timers: set[tuple[int, Key]] = field(default_factory=set)


class Handle:
    """pyspark's handle of one batch."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = store or Store()
        self.key: Key = ("a",)
        self.defined: dict[str, tuple[Any, ...]] = {}

    def getValueState(self, name: str, schema: str, ttl: int | None = None) -> "Value":
        self.defined[name] = ("value", schema, ttl)
        return Value(self, name)

    def getListState(self, name: str, schema: str, ttl: int | None = None) -> "List":
        self.defined[name] = ("list", schema, ttl)
        return List(self, name)

    def getMapState(self, name: str, keys: str, values: str, ttl: int | None = None) -> "Map":
        self.defined[name] = ("map", keys, values, ttl)
        return Map(self, name)

    def registerTimer(self, time: int) -> None:
        self.store.timers.add((time, self.key))

    def deleteTimer(self, time: int) -> None:
        self.store.timers.discard((time, self.key))

    def listTimers(self) -> Iterator[int]:
        return iter(sorted((t for t, key in self.store.timers if key == self.key), reverse=True))


class Variable:
    def __init__(self, handle: Handle, name: str) -> None:
        self.handle = handle
        self.name = name

    @property
    def at(self) -> tuple[str, Key]:
        return self.name, self.handle.key


class Value(Variable):
    def exists(self) -> bool:
        return self.at in self.handle.store.values

    def get(self) -> Any:
        return stored(self.handle.store.values.get(self.at))

    def update(self, value: Any) -> None:
        self.handle.store.values[self.at] = value

    def clear(self) -> None:
        self.handle.store.values.pop(self.at, None)


class List(Variable):
    def exists(self) -> bool:
        return self.at in self.handle.store.lists

    def get(self) -> Iterator[Any]:
        # Spark reads it in chunks, while it may be changed: reading on would be a fault.
        before = list(self.handle.store.lists.get(self.at, ()))
        for element in before:
            yield stored(element)
            assert self.handle.store.lists.get(self.at) == before

    def put(self, values: list[Any]) -> None:
        assert values, "Cannot write empty list values to State Store"
        self.handle.store.lists[self.at] = list(values)

    def appendValue(self, value: Any) -> None:
        self.appendList([value])

    def appendList(self, values: list[Any]) -> None:
        assert values, "Cannot write empty list values to State Store"
        self.handle.store.lists.setdefault(self.at, []).extend(values)

    def clear(self) -> None:
        self.handle.store.lists.pop(self.at, None)


class Map(Variable):
    @property
    def entries(self) -> dict[Key, Any]:
        return self.handle.store.maps.setdefault(self.at, {})

    def exists(self) -> bool:
        return bool(self.entries)

    def getValue(self, key: Key) -> Any:
        return stored(self.entries.get(key))

    def containsKey(self, key: Key) -> bool:
        return key in self.entries

    def updateValue(self, key: Key, value: Any) -> None:
        self.entries[key] = value

    def iterator(self) -> Iterator[Any]:
        for key in reversed(self.entries):  # a change meanwhile raises RuntimeError
            yield stored(key), stored(self.entries[key])

    def removeKey(self, key: Key) -> None:
        self.entries.pop(key, None)

    def clear(self) -> None:
        self.entries.clear()


@dataclass
class Times:
    """Spark's `TimerValues`."""

    now: int
    watermark: int

    def getCurrentProcessingTimeInMs(self) -> int:
        return self.now

    def getCurrentWatermarkInMs(self) -> int:
        return self.watermark


@dataclass
class Expiry:
    time: int

    def getExpiryTimeInMs(self) -> int:
        return self.time


class Query:
    """Runs batches of rows over one store; `time_of` and `delay_ms` make the watermark."""

    def __init__(self, processor: SparkProcessor, time_of: str, delay_ms: int) -> None:
        self.processor = processor
        self.store = Store()
        self.watermark = 0
        self._newest = 0
        self._late_at = 0
        self._time_of = time_of
        self._delay_ms = delay_ms

    def run(self, key: str, rows: list[dict[str, Any]]) -> list[Any]:
        """One batch; no rows make a batch without data, as Spark runs one at the end."""
        handle = Handle(self.store)
        self.processor.init(handle)
        times = Times(0, self.watermark)
        grouped: dict[Key, list[SparkRow]] = defaultdict(list)
        for row in rows:
            if row[self._time_of] > self._late_at:
                values = (row[key], *row.values(), None)
                grouped[(row[key],)].append(SparkRow.of((key, *row, "tidelog_event_time"), values))
        out: list[Any] = []
        for handle.key, given in grouped.items():
            out += self.processor.handleInputRows(handle.key, iter(given), times)
        for time, handle.key in sorted(t for t in self.store.timers if t[0] <= self.watermark):
            out += self.processor.handleExpiredTimer(handle.key, times, Expiry(time))
            handle.deleteTimer(time)
        self.processor.close()
        self._newest = max([self._newest, *(row[self._time_of] for row in rows)])
        self._late_at, self.watermark = self.watermark, max(0, self._newest - self._delay_ms)
        return out
