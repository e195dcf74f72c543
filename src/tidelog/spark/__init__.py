"""The plug-in for Spark Structured Streaming, seen from Python, and a data source for Spark.

    import tidelog.spark
    from pyspark.sql import SparkSession

    spark = tidelog.spark.configure(SparkSession.builder).getOrCreate()
    spark.dataSource.register(tidelog.spark.TidelogDataSource)

The public API is `__all__`. Invariant: nothing here imports pyspark before the data source or
`transform` is used.
"""

from typing import TYPE_CHECKING, Any

from tidelog.spark.batches import BatchReport, batch_report, follow_batches
from tidelog.spark.plugin.jar import compile_jar, plugin_jar
from tidelog.spark.plugin.settings import configure, settings

if TYPE_CHECKING:
    from tidelog.spark.processor.transform import transform
    from tidelog.spark.source.datasource import TidelogDataSource

__all__ = [
    "BatchReport",
    "TidelogDataSource",
    "batch_report",
    "compile_jar",
    "configure",
    "follow_batches",
    "plugin_jar",
    "settings",
    "transform",
]


def __getattr__(name: str) -> Any:
    if name == "transform":
        from tidelog.spark.processor.transform import transform  # noqa: PLC0415  (the runtime too)

        return transform
    if name != "TidelogDataSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tidelog.spark.source.datasource import TidelogDataSource  # noqa: PLC0415  (needs pyspark)

    return TidelogDataSource
