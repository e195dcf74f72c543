"""A query that reads a topic on where a job has stopped: see `Application`."""

import json
import sys
from pathlib import Path
from typing import Any

from tests.spark.support.place import Place
from tests.spark.support.session import build
from tidelog.spark import starting_offsets


def main() -> None:
    request = json.loads(sys.argv[1])
    spark = build(request["master"], request["settings"], log_level="WARN")
    place = Place(Path(request["jobs"][0]["root"]))
    checkpoint = str(place.checkpoint)
    offsets = starting_offsets(
        request["savepoint"], "source", checkpoint=checkpoint, partitions=request["partitions"]
    )
    reader = spark.readStream.format("kafka").option("startingOffsets", offsets)
    reader = reader.option("kafka.bootstrap.servers", request["bootstrap"])
    rows = reader.option("subscribe", ",".join(request["partitions"])).load()

    def write(batch: Any, number: int) -> None:
        values = batch.selectExpr("CAST(value AS STRING) AS at").collect()
        place.write(number, [row.asDict() for row in values])

    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
