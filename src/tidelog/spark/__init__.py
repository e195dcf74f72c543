"""The plug-in for Spark Structured Streaming, seen from Python, and a data source for Spark.

    import tidelog.spark
    from pyspark.sql import SparkSession

    spark = tidelog.spark.configure(SparkSession.builder).getOrCreate()
    spark.dataSource.register(tidelog.spark.TidelogDataSource)

The public API is what `__init__.pyi` lists. Invariant: nothing here imports pyspark before the data
source or `transform` is used.
"""

from tidelog.public import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
