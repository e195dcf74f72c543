"""A query that begins with a savepoint, as a process of its own: see `Application`."""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.handover.functions import DELAY_MS, INPUT, OUTPUT, Mover
from tests.spark.support.place import Place
from tests.spark.support.session import build
from tidelog.spark import transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def moved(spark: "SparkSession", place: Place, savepoint: str, **options: Any) -> "DataFrame":
    """The query over the records that come after the savepoint."""
    stream = spark.readStream.schema(INPUT).json(str(place.source("after")))
    return transform(
        stream,
        Mover,
        key="k",
        output_schema=OUTPUT,
        time_mode="event",
        event_time="time_ms",
        max_delay_ms=DELAY_MS,
        initial_state=savepoint,
        operator="mover",
        checkpoint=str(place.checkpoint),
        **options,
    )


def run(frame: "DataFrame", place: Place, *, hangs: bool = False) -> None:
    """Run a query over all files there are; one that `hangs` does so in its first batch."""

    def write(rows: "DataFrame", batch: int) -> None:
        place.write(batch, [row.asDict(recursive=True) for row in rows.collect()])
        while hangs:
            time.sleep(1)

    writer = frame.writeStream.outputMode("append").foreachBatch(write)
    writer = writer.option("checkpointLocation", str(place.checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    request = json.loads(sys.argv[1])
    spark = build(request["master"], request["settings"], log_level="WARN")
    place = Place(Path(request["jobs"][0]["root"]))
    run(moved(spark, place, request["savepoint"]), place, hangs=request["hangs"])
    spark.stop()


if __name__ == "__main__":
    main()
