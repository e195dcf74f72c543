"""Starts queries of the zoo on a session and runs them over the input that is there."""

from typing import TYPE_CHECKING

from tests.spark.support.place import Place
from tests.spark.support.zoo.query import Batch, Query, Sources, Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

ROUNDS = 3


def add(place: Place, batches: list[Batch]) -> None:
    for batch in batches:
        for source, records in batch.items():
            place.add(source, records)


def start(
    spark: "SparkSession",
    query: Query,
    place: Place,
    follow: bool = False,
    checkpoint: str | None = None,
    topics: Topics | None = None,
) -> "StreamingQuery":
    """Starts a query over the input that is there, or, with `follow`, over all that comes."""
    for key, value in query.settings.items():
        spark.conf.set(key, value)

    def write(frame: "DataFrame", batch: int) -> None:
        place.write(batch, [row.asDict(recursive=True) for row in frame.collect()])

    writer = (
        query.build(Sources(spark, place, query.schema, topics))
        .writeStream.outputMode(query.mode)
        .queryName(query.name)
        .option("checkpointLocation", checkpoint or str(place.checkpoint))
        .foreachBatch(write)
    )
    chosen = (
        writer.trigger(processingTime="0 seconds") if follow else writer.trigger(availableNow=True)
    )
    return chosen.start()


def finish(
    spark: "SparkSession", query: Query, place: Place, checkpoint: str | None = None
) -> None:
    """Runs a query until it has read all files that are there; raises what ends it."""
    start(spark, query, place, checkpoint=checkpoint).awaitTermination()


def run_in_rounds(
    spark: "SparkSession",
    query: Query,
    place: Place,
    checkpoint: str | None = None,
    number: int = ROUNDS,
) -> list[Batch]:
    """Runs a query over its input, started anew for every part of it; returns the input."""
    batches = query.batches()
    size = -(-len(batches) // number)
    for at in range(0, len(batches), size):
        add(place, batches[at : at + size])
        finish(spark, query, place, checkpoint)
    return batches
