"""Stateless operators: user functions over records or whole buffers."""

from collections.abc import Callable, Iterable
from typing import Any

from tidelog.runtime.blame import every
from tidelog.runtime.channels.messages import Batch
from tidelog.runtime.operators.operator import Operator


class Map(Operator):
    """One record in, one record out."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def process(self, batch: Batch) -> Iterable[Batch]:
        return (Batch(every(self._function, batch.records), batch.times),)


class Filter(Operator):
    """Keeps records the predicate holds for."""

    def __init__(self, predicate: Callable[[Any], bool]) -> None:
        self._predicate = predicate

    def process(self, batch: Batch) -> Iterable[Batch]:
        predicate = self._predicate
        if batch.times is None:
            return (Batch([record for record in batch.records if predicate(record)]),)
        kept = [(r, t) for r, t in zip(batch.records, batch.times, strict=True) if predicate(r)]
        return (Batch([r for r, _ in kept], [t for _, t in kept]),)


class FlatMap(Operator):
    """One record in, any number out."""

    def __init__(self, function: Callable[[Any], Iterable[Any]]) -> None:
        self._function = function

    def process(self, batch: Batch) -> Iterable[Batch]:
        function = self._function
        if batch.times is None:
            return (Batch([out for record in batch.records for out in function(record)]),)
        pairs = [
            (out, time)
            for record, time in zip(batch.records, batch.times, strict=True)
            for out in function(record)
        ]
        return (Batch([out for out, _ in pairs], [time for _, time in pairs]),)


class MapBatches(Operator):
    """A whole buffer of records in, one out; event times are dropped."""

    def __init__(self, function: Callable[[list[Any]], list[Any]]) -> None:
        self._function = function

    def process(self, batch: Batch) -> Iterable[Batch]:
        return (Batch(self._function(batch.records)),)


class AssignEventTime(Operator):
    """Gives records their event times and derives watermarks.

    The watermark trails the greatest time seen by the allowed lateness and never goes back.
    """

    def __init__(self, time_of: Callable[[Any], int], max_delay_ms: int) -> None:
        self._time_of = time_of
        self._max_delay_ms = max_delay_ms
        self._latest: int | None = None

    def process(self, batch: Batch) -> Iterable[Batch]:
        times = every(self._time_of, batch.records)
        if times:
            newest = max(times)
            self._latest = newest if self._latest is None else max(self._latest, newest)
        return (Batch(batch.records, times),)

    def generated_watermark(self) -> int | None:
        """The watermark after the buffers seen so far."""
        return None if self._latest is None else self._latest - self._max_delay_ms - 1
