"""Spark's reader of a batch: planned on the driver, narrowed by filters, read in executors.

Invariants: a reader keeps nothing but the request, so Spark can send it anywhere; a filter that is
taken is applied exactly, every other one is given back as the same object, and Spark applies it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from tidelog.spark.source.parts import Part, Request, Task, connected, noticing_drops
from tidelog.spark.source.planning import plan
from tidelog.spark.source.views import View
from tidelog.spark.source.wanted import Intervals, Wanted

if TYPE_CHECKING:
    import pyarrow as pa

_TEXTS: Final = frozenset({"operator"})


def push(filters: Iterable[Filter], view: View, wanted: Wanted) -> tuple[Wanted, list[Filter]]:
    """What is wanted once the filters are applied too, and the filters left to Spark."""
    left = []
    for each in filters:
        narrowed = _narrowed(each, view, wanted)
        if narrowed is None:
            left.append(each)
        else:
            wanted = narrowed
    return wanted, left


def _narrowed(each: Filter, view: View, wanted: Wanted) -> Wanted | None:
    path: tuple[str, ...] = getattr(each, "attribute", ())
    column = path[0] if len(path) == 1 else ""
    if column not in view.narrowed_by:
        return None
    if column in _TEXTS:
        texts = _texts(each)
        return None if texts is None else wanted.with_texts(column, texts)
    numbers = _numbers(each)
    return None if numbers is None else wanted.with_numbers(column, numbers)


def _texts(each: Filter) -> frozenset[str] | None:
    match each:
        case EqualTo(_, str() as text):
            return frozenset({text})
        case In(_, texts) if all(isinstance(text, str) for text in texts):
            return frozenset(texts)
    return None


def _numbers(each: Filter) -> Intervals | None:
    found = None
    match each:
        case EqualTo(_, int() as number):
            found = Intervals.numbers([number])
        case In(_, numbers) if all(isinstance(number, int) for number in numbers):
            found = Intervals.numbers(numbers)
        case GreaterThan(_, int() as number):
            found = Intervals.between(first=number + 1)
        case GreaterThanOrEqual(_, int() as number):
            found = Intervals.between(first=number)
        case LessThan(_, int() as number):
            found = Intervals.between(last=number - 1)
        case LessThanOrEqual(_, int() as number):
            found = Intervals.between(last=number)
    return found


class BatchReader(DataSourceReader):
    """Reads a view; filters stay with Spark."""

    def __init__(self, request: Request) -> None:
        self.request = request

    def partitions(self) -> list[InputPartition]:
        """What to read; raises what planning raises."""
        options = self.request.options
        with connected(options.url, options.access) as session:
            parts = session.run(plan(session.store, self.request))
        # Where there is none Spark makes one up, each version of it another.
        return [InputPartition(part) for part in parts] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The rows of a partition; raises what reading it raises."""
        return read_part(self.request, partition)


class NarrowingReader(BatchReader):
    """Reads a view, and skips what Spark's filters leave out.

    A class of its own, because Spark refuses readers with `pushFilters` unless
    `spark.sql.python.filterPushdown.enabled` is set.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take the filters that reading can apply; returns the others."""
        wanted, left = push(filters, self.request.options.view, self.request.wanted)
        self.request = replace(self.request, wanted=wanted)
        return left


def read_part(request: Request, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
    """The rows of a partition; none for that of an empty plan.

    Raises RestoreError when what it was planned from is gone, and what reading it raises.
    """
    part: Part | None = partition.value
    if part is None:
        return
    url = request.options.url
    with noticing_drops(url), connected(url, request.options.access) as session:
        yield from part.read(Task(request, session))
