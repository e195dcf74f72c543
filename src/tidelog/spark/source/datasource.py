"""The data source `tidelog`, as Spark sees it.

    spark.dataSource.register(TidelogDataSource)
    spark.read.format("tidelog").option("view", "changes").load("s3://bucket/jobs/counts")

Invariant: options and columns are checked before anything is read. Options and views:
docs/guides/data-source.md.
"""

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from tidelog.errors import ConfigError
from tidelog.spark.source.options import read_options
from tidelog.spark.source.parts import Request
from tidelog.spark.source.reader import BatchReader, NarrowingReader
from tidelog.spark.source.views import checked, chosen, ddl


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
        request = Request(options, checked(options.view, fields), options.wanted)
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
