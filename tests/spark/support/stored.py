"""One query, stored once for all tests of formats: 14 batches whose state is in changelogs only,
and two more batches to come.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.support.place import Place
from tests.spark.support.running import add, finish
from tests.spark.support.zoo.aggregations import TOTALS
from tests.spark.support.zoo.query import events, single

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCHES = single(events(seed=7, batches=16, per_batch=20))
BEFORE = 14
_NO_SNAPSHOTS = {
    "spark.sql.streaming.minBatchesToRetain": "100",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "100",
}


def session(spark: "SparkSession") -> "SparkSession":
    """A session that takes no snapshots and keeps all batches."""
    other = spark.newSession()
    for key, setting in _NO_SNAPSHOTS.items():
        other.conf.set(key, setting)
    return other


def stored_query(spark: "SparkSession", root: Path) -> Place:
    """Run and store it."""
    place = Place(root)
    add(place, BATCHES[:BEFORE])
    finish(session(spark), TOTALS, place)
    add(place, BATCHES[BEFORE:])
    return place
