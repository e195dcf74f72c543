"""Spark's reader of a batch: partitions planned on the driver, read in executors.

Invariants: a reader keeps nothing but the request, so Spark can send it anywhere; partitions are
what planning made of it, each read with a connection of its own.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from tidelog.spark.source.access import connected
from tidelog.spark.source.dropped import noticing_drops
from tidelog.spark.source.filters import push
from tidelog.spark.source.parts import Part, Request, Task
from tidelog.spark.source.planning import plan

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """Reads a view; filters stay with Spark."""

    def __init__(self, request: Request) -> None:
        self.request = request

    def partitions(self) -> list[InputPartition]:
        """What to read; raises what planning raises."""
        options = self.request.options
        with connected(options.url, options.endpoint) as session:
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
    with noticing_drops(url), connected(url, request.options.endpoint) as session:
        yield from part.read(Task(request, session))
