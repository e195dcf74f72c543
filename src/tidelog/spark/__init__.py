"""The plug-in for Spark Structured Streaming, seen from Python.

    import tidelog.spark
    from pyspark.sql import SparkSession

    spark = tidelog.spark.configure(SparkSession.builder).getOrCreate()

The public API is `__all__`. Invariant: nothing here imports pyspark.
"""

from tidelog.spark.compiler import compile_jar
from tidelog.spark.jar import plugin_jar
from tidelog.spark.settings import configure, settings

__all__ = ["compile_jar", "configure", "plugin_jar", "settings"]
