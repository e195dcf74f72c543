"""One run of a cell in this process: its own Spark application, then figures.

Invariant: requests are counted between two commits, so they belong to exactly the batches whose
durations are given.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.spark_cell import SCHEME, Cell, spark_settings
from benchmarks.spark_figures import Counts, figures, parse_counts, plugin_metrics
from benchmarks.spark_queries import QUERIES
from tidelog.bench.embedded.run import scratch
from tidelog.spark.settings import PLUGIN_CLASS

_SLICE_MS = 500
_TIMEOUT_S = 1800


@contextlib.contextmanager
def session(cell: Cell, store: str, directory: Path) -> Iterator[SparkSession]:
    """A Spark application of its own; call it once per process."""
    builder = SparkSession.builder.appName(f"{store} {cell.name}")
    for key, value in spark_settings(cell, store, directory).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def start(spark: SparkSession, cell: Cell, checkpoint: Path) -> StreamingQuery:
    """Start the cell's query on a checkpoint behind the file system that counts."""
    build, mode = QUERIES[cell.query]
    return (
        build(spark)
        .writeStream.format("noop")
        .outputMode(mode)
        .option("checkpointLocation", f"{SCHEME}://{checkpoint}")
        .trigger(processingTime=f"{cell.trigger_ms} milliseconds")
        .start()
    )


def await_batch(spark: SparkSession, query: StreamingQuery, batch: int) -> None:
    """Return when the batch is committed and reported; the query's own error if it ends before."""
    for _ in range(_TIMEOUT_S * 1000 // _SLICE_MS):
        committed = _requests(spark).awaitCommit(batch, _SLICE_MS)
        last = query.lastProgress
        if committed and last is not None and last["batchId"] >= batch:
            return
        if not query.isActive:
            raise query.exception() or RuntimeError(f"the query ended before batch {batch}")
    raise TimeoutError(f"batch {batch} is not committed after {_TIMEOUT_S} s")


def counts_at(spark: SparkSession, batch: int) -> Counts:
    """All requests of the process until the batch was committed."""
    return parse_counts(_requests(spark).at(batch))


def measure(cell: Cell, store: str) -> dict[str, Any]:
    """Run the cell from an empty checkpoint; call it in a fresh process."""
    with scratch() as directory, session(cell, store, directory) as spark:
        query = start(spark, cell, directory / "checkpoint")
        last = cell.warm + cell.batches - 1
        await_batch(spark, query, last)
        query.stop()
        progress = [p for p in query.recentProgress if cell.warm <= p["batchId"] <= last]
        before, after = counts_at(spark, cell.warm - 1), counts_at(spark, last)
        result = figures(progress, before, after)
        result["cpu_ms"] = round(_cpu_ms(spark, cell.warm - 1, last) / cell.batches, 1)
        if store == "tidelog":
            metrics = spark._jvm.org.apache.spark.benchmark.PluginMetrics.read(PLUGIN_CLASS)
            result["plugin"] = plugin_metrics(metrics)
        return result


def _cpu_ms(spark: SparkSession, first: int, last: int) -> float:
    requests = _requests(spark)
    return float(requests.cpuMsAt(last) - requests.cpuMsAt(first))


def _requests(spark: SparkSession) -> Any:
    return spark._jvm.tidelog.benchmark.Requests
