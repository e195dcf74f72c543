"""The data source `tidelog`, as Spark sees it: planned on the driver, read in executors.

    spark.dataSource.register(TidelogDataSource)
    spark.read.format("tidelog").option("view", "changes").load("s3://bucket/jobs/counts")

Invariants: options and columns are checked before anything is read; a reader keeps nothing but the
request, so Spark can send it anywhere; filters are left to Spark, which keeps one set of them for
all uses of a load. Options and views: docs/guides/data-source.md.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from tidelog.errors import ConfigError
from tidelog.spark.source.options import read_options
from tidelog.spark.source.parts import ReadPart, ReadRequest, connected, noticing_drops
from tidelog.spark.source.planning import plan
from tidelog.spark.source.views import checked, chosen, ddl


class TidelogDataSource(DataSource):
    """Reads tidelog's stores, and the checkpoints of Spark queries with the plug-in."""

    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> str:
        """The columns that the options choose; raises ConfigError for a wrong option."""
        options = read_options(self.options)
        return ddl(chosen(options.view, options.columns, decode=options.decode))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns of a schema; raises ConfigError for a column that is none."""
        options = read_options(self.options)
        fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        return BatchReader(ReadRequest(options, checked(options.view, fields)))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Always raises ConfigError; Spark's own error would only name a missing method."""
        view = read_options(self.options).view.name
        raise ConfigError(
            f"readStream with the tidelog data source: view {view}",
            expected="spark.read, as views are read in batches",
            found="spark.readStream",
            action="load the view with spark.read, and for what is new load it again with option "
            "checkpoint or seqno; `tidelog log URL --follow` prints changes as they become durable",
        )


class BatchReader(DataSourceReader):
    """Reads a view; filters stay with Spark."""

    def __init__(self, request: ReadRequest) -> None:
        self.request = request

    def partitions(self) -> list[InputPartition]:
        """What to read; raises what planning raises."""
        options = self.request.options
        with connected(options.url, options.access) as session:
            parts = session.run(plan(session.store, self.request))
        # Where there is none Spark makes one up, each version of it another.
        return [InputPartition(part) for part in parts] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition; none for that of an empty plan.

        Raises RestoreError when what it was planned from is gone, and what reading it raises.
        """
        part: ReadPart | None = partition.value
        if part is None:
            return
        options = self.request.options
        with noticing_drops(options.url), connected(options.url, options.access) as session:
            yield from part.read(self.request, session)
