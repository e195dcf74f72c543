"""A query that is started for the two batches that have come and ends before its first maintenance,
as a scheduler runs it, once with the plug-in and once with Spark alone.

Run as a module, some of these runs, each in a Spark of its own that logs its warnings; notes what
each run has left.
"""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tests.spark.support.running as running
from tests.spark.support.place import Place
from tests.spark.support.session import build
from tests.spark.support.zoo.aggregations import TOTALS
from tests.spark.support.zoo.query import events, single

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS = 12
PER_RUN = 2
MIN_DELTAS = 4
STORES = 4
BATCHES = single(events(seed=11, batches=RUNS * PER_RUN, per_batch=40, keys=40))
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
STOCK_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
SETTINGS = {
    "spark.sql.shuffle.partitions": str(STORES),
    "spark.sql.streaming.minBatchesToRetain": "3",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": str(MIN_DELTAS),
    "spark.sql.streaming.stateStore.maintenanceInterval": "1h",
    "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint": "0",
    "spark.tidelog.snapshot.interval": "4min",
}


@dataclass(frozen=True)
class Left:
    """A checkpoint at the end of a run."""

    newest: int
    """The newest version of its stores."""
    oldest_commit: int
    uploaded: list[int]
    """The version of the newest snapshot of each store; 0 without one."""
    files: int


def left_by(place: Place) -> list[Left]:
    """What the runs so far have left."""
    lines = (place.root / "left.jsonl").read_text().splitlines()
    return [Left(**json.loads(line)) for line in lines]


def session(spark: "SparkSession", stock: bool) -> "SparkSession":
    other = spark.newSession()
    if stock:
        other.conf.set(MANAGER, STOCK_MANAGER)
    return other


def snapshots_in(place: Place) -> list[list[int]]:
    """The versions of the snapshots of each store."""
    directories = [place.checkpoint / "state" / "0" / str(store) for store in range(STORES)]
    return [sorted(int(f.name.split("_")[0]) for f in one.glob("*.zip")) for one in directories]


def _left(place: Place) -> Left:
    # Hadoop's checksum files and the files of the input are not counted.
    kept = [file for name in ("state", "commits", "offsets", "_tidelog") for file in
            (place.checkpoint / name).rglob("*")]  # fmt: skip
    return Left(
        newest=place.committed()[-1] + 1,
        oldest_commit=place.committed()[0],
        uploaded=[max(one, default=0) for one in snapshots_in(place)],
        files=sum(file.is_file() and not file.name.endswith(".crc") for file in kept),
    )


def main() -> None:
    request = json.loads(sys.argv[1])
    places = [Place(Path(job["root"])) for job in request["jobs"]]
    for run in request["runs"]:
        settings = {**request["settings"], **SETTINGS, **request.get("more", {})}
        spark = build("local[2]", settings, log_level="WARN")
        per_run = request.get("per_run", PER_RUN)
        for place, stock in zip(places, (False, True), strict=True):
            running.add(place, BATCHES[run * per_run : (run + 1) * per_run])
            running.finish(session(spark, stock), TOTALS, place)
        jvm: Any = spark._jvm
        spark.stop()
        # The stores would stay open, as long as this process lives.
        jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()
        for place in places:
            with (place.root / "left.jsonl").open("a") as file:
                print(json.dumps(asdict(_left(place))), file=file)


if __name__ == "__main__":
    main()
