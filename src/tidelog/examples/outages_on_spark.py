"""The outages as a streaming query of Spark with the plug-in."""

from typing import TYPE_CHECKING

import click

from tidelog.connectors.line_encoding import line_encoder
from tidelog.examples.outages_function import INPUT, MAX_DELAY_MS, OUTPUT, Outages
from tidelog.examples.spark_check import literal
from tidelog.examples.spark_wordcount import session
from tidelog.spark.processor.transform import transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run_on_spark(directory: str, state: str, include: str, master: str, partitions: int) -> None:
    """Read the files there are, one per batch, and print the lines; raises ConfigError."""
    conf = {
        "spark.app.name": "tidelog outages",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": str(partitions),
    }
    spark = session(master, conf, stock=False)
    try:
        query = outages(spark, directory, include).writeStream.outputMode("append")
        query = query.option("checkpointLocation", state).foreachBatch(_print)
        query.trigger(availableNow=True).start().awaitTermination()
    finally:
        spark.stop()


def outages(spark: "SparkSession", directory: str, include: str = "*.jsonl") -> "DataFrame":
    """The query: outages in the files of a directory, as they appear."""
    readings = spark.readStream.schema(INPUT).options(
        mode="FAILFAST", pathGlobFilter=include, maxFilesPerTrigger=1, maxFileAge="36500d"
    )
    return transform(
        readings.json(literal(directory)),
        Outages,
        key="device",
        output_schema=OUTPUT,
        time_mode="event",
        event_time="time_ms",
        max_delay_ms=MAX_DELAY_MS,
    )


def _print(frame: "DataFrame", batch: int) -> None:
    encode = line_encoder("json")
    for row in frame.collect():
        click.echo(encode([row.asDict(recursive=True)]), nl=False)
