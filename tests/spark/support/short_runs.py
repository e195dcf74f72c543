"""A query that is started for the two batches that have come and ends before its next maintenance,
as a scheduler runs it; run as a module, one such run in a process of its own.
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.support.place import Place
from tests.spark.support.session import build
from tests.spark.support.zoo.aggregations import TOTALS
from tests.spark.support.zoo.query import Batch, Sources, events, single

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUNS = 12
PER_RUN = 2
BATCHES = single(events(seed=11, batches=RUNS * PER_RUN, per_batch=40, keys=40))
SETTINGS = {
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.minBatchesToRetain": "3",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "4",
    "spark.sql.streaming.stateStore.maintenanceInterval": "1h",
    "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint": "0",
    "spark.tidelog.snapshot.interval": "4min",
}


def input_of(run: int) -> list[Batch]:
    return BATCHES[run * PER_RUN : (run + 1) * PER_RUN]


def run_once(spark: "SparkSession", place: Place) -> None:
    """Reads what has come; Spark's maintenance runs once, between the two batches."""
    jvm: Any = spark._jvm
    maintenance = jvm.tidelog.spark.faults.Maintenance
    batches: list[int] = []

    def write(frame: "DataFrame", batch: int) -> None:
        if batches:
            maintenance.tick()
        batches.append(batch)
        place.write(batch, [row.asDict(recursive=True) for row in frame.collect()])

    for key, value in SETTINGS.items():
        if key.startswith("spark.sql."):
            spark.conf.set(key, value)
    writer = TOTALS.build(Sources(spark, place, TOTALS.schema)).writeStream
    writer = writer.outputMode(TOTALS.mode).option("checkpointLocation", str(place.checkpoint))
    writer.foreachBatch(write).trigger(availableNow=True).start().awaitTermination()
    assert len(batches) == PER_RUN
    maintenance.end()


def snapshots(place: Place) -> dict[int, int]:
    """The version of each store's newest snapshot; 0 without one."""
    stores = (place.checkpoint / "state" / "0").glob("[0-9]*")
    return {
        int(store.name): max(
            (int(file.name.split("_")[0]) for file in store.glob("*.zip")), default=0
        )
        for store in stores
    }


def files(place: Place) -> int:
    """How many files the checkpoint has, besides those of its input."""
    kept = [file for name in ("state", "commits", "offsets", "_tidelog") for file in
            (place.checkpoint / name).rglob("*")]  # fmt: skip
    return sum(file.is_file() and not file.name.endswith(".crc") for file in kept)


def main() -> None:
    request = json.loads(sys.argv[1])
    spark = build("local[2]", {**request["settings"], **SETTINGS})
    run_once(spark, Place(Path(request["jobs"][0]["root"])))
    spark.stop()


if __name__ == "__main__":
    main()
