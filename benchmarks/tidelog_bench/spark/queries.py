"""The queries of the Spark benchmarks, over a source that costs next to nothing.

Invariant: what a batch holds depends on its number alone, so runs and restarts are equal.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

_SOURCE_PARTITIONS: Final = 2


@dataclass(frozen=True, slots=True)
class Query:
    """A query and its output mode."""

    build: Callable[[SparkSession], DataFrame]
    mode: str


def rows(spark: SparkSession, count: int) -> DataFrame:
    """`count` rows per batch: `value` counts on, `timestamp` advances by a second per batch."""
    return (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", count)
        .option("numPartitions", _SOURCE_PARTITIONS)
        .load()
    )


def aggregation(spark: SparkSession) -> DataFrame:
    """10,000 rows over 20,011 keys of 200 characters."""
    key = F.rpad((F.col("value") * 7919 % 20_011).cast("string"), 200, ".")
    return rows(spark, 10_000).groupBy(key.alias("word")).count()


def long_keys(spark: SparkSession) -> DataFrame:
    """21,000 rows, each of a key of 1,024 characters that do not compress; the same keys in every
    batch. With two partitions each has a changelog of 10 MB.
    """
    number = (F.col("value") % 21_000).cast("string")
    key = F.concat(*(F.sha2(F.concat(number, F.lit(f" {part}")), 512) for part in range(8)))
    return rows(spark, 21_000).groupBy(key.alias("word")).count()


def sliding_window(spark: SparkSession) -> DataFrame:
    """2,000 rows over 500 keys, in windows of 10 s every 2 s."""
    timed = rows(spark, 2_000).withWatermark("timestamp", "10 seconds")
    window = F.window("timestamp", "10 seconds", "2 seconds")
    return timed.groupBy(window, (F.col("value") % 500).alias("key")).count()


def join(spark: SparkSession) -> DataFrame:
    """2,000 rows on each side; a row meets one of the same batch."""
    left, right = (
        rows(spark, 2_000)
        .withColumnsRenamed({"value": f"{side}_value", "timestamp": f"{side}_time"})
        .withWatermark(f"{side}_time", "10 seconds")
        for side in ("left", "right")
    )
    near = F.expr(
        "left_value = right_value AND right_time >= left_time"
        " AND right_time <= left_time + INTERVAL 5 SECONDS"
    )
    return left.join(right, near)


def transform(spark: SparkSession) -> DataFrame:
    """2,000 rows over 500 keys that are others after four batches; sessions, by a processor
    within the JVM: a value and a timer per key.
    """
    count = 2_000
    jvm = spark._jvm
    assert jvm is not None
    sessions = jvm.tidelog.benchmark.Sessions.of(rows(spark, count)._jdf, count)
    return DataFrame(sessions, spark)


QUERIES: Final[dict[str, Query]] = {
    "aggregation": Query(aggregation, "update"),
    "long_keys": Query(long_keys, "update"),
    "window": Query(sliding_window, "update"),
    "join": Query(join, "append"),
    "transform": Query(transform, "append"),
}
