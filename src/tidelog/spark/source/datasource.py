"""The data source `tidelog`, as Spark sees it.

    spark.dataSource.register(TidelogDataSource)
    spark.read.format("tidelog").option("view", "changes").load("s3://bucket/jobs/counts")

Invariant: options and columns are checked before anything is read. Options and views:
docs/guides/data-source.md.
"""

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from tidelog.spark.source.options import read_options
from tidelog.spark.source.parts import Request
from tidelog.spark.source.reader import BatchReader, NarrowingReader
from tidelog.spark.source.stream import StreamReader
from tidelog.spark.source.views import checked, chosen, ddl


class TidelogDataSource(DataSource):
    """Reads tidelog's stores, and the checkpoints of Spark queries with the plug-in."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "tidelog"

    def schema(self) -> str:
        """The columns that the options choose; raises ConfigError for a wrong option."""
        # Spark does not say whether it is for a stream: what only streams take is let through.
        options = read_options(self.options, streaming=None)
        return ddl(chosen(options.view, options.columns, decode=options.decode))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns of a schema; raises ConfigError for a column that is none."""
        request = self._request(schema, streaming=False)
        return (NarrowingReader if request.options.pushdown else BatchReader)(request)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader that follows the changes; raises like `reader`."""
        return StreamReader(self._request(schema, streaming=True))

    def _request(self, schema: StructType, *, streaming: bool) -> Request:
        options = read_options(self.options, streaming=streaming)
        fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        return Request(options, checked(options.view, fields), options.wanted)
