"""The data source `tidelog`, as Spark sees it: planned on the driver, read in executors.

    spark.dataSource.register(TidelogDataSource)
    spark.read.format("tidelog").option("view", "changes").load("s3://bucket/jobs/counts")

Invariants: options and columns are checked before anything is read; a reader keeps nothing but the
request, so Spark can send it anywhere; a filter that is taken is applied exactly, every other one
is given back as the same object, and Spark applies it. Options and views:
docs/guides/data-source.md.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.datasource import Filter as SparkFilter
from pyspark.sql.types import StructType

from tidelog.errors import ConfigError
from tidelog.spark.source.filters import Filter, Intervals
from tidelog.spark.source.options import read_options
from tidelog.spark.source.parts import Part, Request, Task, connected, noticing_drops
from tidelog.spark.source.planning import plan
from tidelog.spark.source.views import View, checked, chosen, ddl

if TYPE_CHECKING:
    import pyarrow as pa

_TEXTS: Final = frozenset({"operator"})


class TidelogDataSource(DataSource):
    """Reads tidelog's stores, and the checkpoints of Spark queries with the plug-in."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "tidelog"

    def schema(self) -> str:
        """The columns that the options choose; raises ConfigError for a wrong option."""
        options = read_options(self.options)
        return ddl(chosen(options.view, options.columns, decode=options.decode))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns of a schema; raises ConfigError for a column that is none."""
        options = read_options(self.options)
        fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        request = Request(options, checked(options.view, fields), options.filter)
        return (NarrowingReader if options.pushdown else BatchReader)(request)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Always raises ConfigError; Spark's own error would only name a missing method."""
        view = read_options(self.options).view.name
        raise ConfigError(
            f"readStream with the tidelog data source: view {view}",
            expected="spark.read, as views are read in batches",
            found="spark.readStream",
            action="load the view with spark.read, and for what is new load it again with option "
            "slot or seqno; `tidelog log URL --follow` prints changes as they become durable",
        )


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

    def pushFilters(self, filters: list[SparkFilter]) -> Iterable[SparkFilter]:
        """Take the filters that reading can apply; returns the others."""
        narrowed, left = push(filters, self.request.options.view, self.request.filter)
        self.request = replace(self.request, filter=narrowed)
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


def push(
    pushed: Iterable[SparkFilter], view: View, narrowed: Filter
) -> tuple[Filter, list[SparkFilter]]:
    """The filter with Spark's applied too, and those of Spark's that are left to it."""
    left = []
    for each in pushed:
        narrower = _narrower(each, view, narrowed)
        if narrower is None:
            left.append(each)
        else:
            narrowed = narrower
    return narrowed, left


def _narrower(each: SparkFilter, view: View, before: Filter) -> Filter | None:
    path: tuple[str, ...] = getattr(each, "attribute", ())
    column = path[0] if len(path) == 1 else ""
    if column not in view.narrowed_by:
        return None
    if column in _TEXTS:
        texts = _texts(each)
        return None if texts is None else before.with_texts(column, texts)
    numbers = _numbers(each)
    return None if numbers is None else before.with_numbers(column, numbers)


def _texts(each: SparkFilter) -> frozenset[str] | None:
    match each:
        case EqualTo(_, str() as text):
            return frozenset({text})
        case In(_, texts) if all(isinstance(text, str) for text in texts):
            return frozenset(texts)
    return None


def _numbers(each: SparkFilter) -> Intervals | None:
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
