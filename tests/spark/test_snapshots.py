"""Snapshots follow what was uploaded: a query in short runs has them as often as with Spark alone,
and its checkpoint stays small.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.support import stores
from tests.spark.support.application import Application, Job
from tests.spark.support.faults import settings
from tests.spark.support.place import Place
from tests.spark.support.running import add
from tests.spark.support.short_runs import (
    BATCHES,
    PER_RUN,
    RUNS,
    files,
    input_of,
    run_once,
    snapshots,
)
from tests.spark.support.zoo.aggregations import TOTALS
from tests.support.depth import only_in_depth
from tidelog.spark.plugin.settings import FILE_MANAGER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.plugin_only

STOCK_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)

Measured = tuple[dict[int, int], list[int]]
"""The largest lag of each store at the end of any run, in versions; the files after each run."""


def measured(place: Place, run: Callable[[], None]) -> Measured:
    lags = dict.fromkeys(range(4), 0)
    counts = []
    for number in range(RUNS):
        add(place, input_of(number))
        run()
        newest = (number + 1) * PER_RUN
        assert place.committed()[-1] == newest - 1
        uploaded = snapshots(place)
        lags = {store: max(lag, newest - uploaded[store]) for store, lag in lags.items()}
        counts.append(files(place))
    assert place.committed()[0] >= RUNS * PER_RUN // 3, "old commits are still there"
    assert TOTALS.result(place.rows()) == TOTALS.expected(BATCHES)
    return lags, counts


def assert_as_bounded(found: Measured, stock: Measured) -> None:
    (lags, counts), (stock_lags, stock_counts) = found, stock
    assert all(lag <= stock_lags[store] for store, lag in lags.items()), (lags, stock_lags)
    half = RUNS // 2
    assert max(counts[half:]) <= max(stock_counts[half:]), (counts, stock_counts)


def state_of(spark: "SparkSession", place: Place) -> list[tuple[object, ...]]:
    frame = spark.read.format("statestore").load(str(place.checkpoint))
    return sorted((row.partition_id, row.key.k, *row.value) for row in frame.collect())


def session(spark: "SparkSession", manager: str | None = None) -> "SparkSession":
    other = spark.newSession()
    if manager is not None:
        other.conf.set(FILE_MANAGER, manager)
    return other


def test_short_runs_lag_no_more_than_with_spark_alone_and_keep_no_more_files(
    one_spark: "SparkSession", tmp_path: Path
) -> None:
    ours, stock = Place(tmp_path / "ours"), Place(tmp_path / "stock")

    found = measured(ours, lambda: run_once(session(one_spark), ours))
    alone = measured(stock, lambda: run_once(session(one_spark, STOCK_MANAGER), stock))

    assert_as_bounded(found, alone)
    assert not (stock.checkpoint / "_tidelog").exists()
    assert state_of(session(one_spark), ours) == state_of(session(one_spark), stock)


@only_in_depth("the same in one process")
def test_short_runs_in_processes_lag_no_more_than_with_spark_alone(
    one_spark: "SparkSession", tmp_path: Path
) -> None:
    def in_processes(store: str) -> tuple[Place, Measured]:
        place = Place(tmp_path / store)
        given = stores.store_settings(store)
        given |= settings(tmp_path / "no-faults", given.get("spark.jars", ""))

        def run() -> None:
            module = "tests.spark.support.short_runs"
            with Application((Job(place, TOTALS.name),), given, module=module) as application:
                application.finish()

        return place, measured(place, run)

    ours, found = in_processes(stores.PLUGIN)
    stock, alone = in_processes(stores.STOCK)

    assert_as_bounded(found, alone)
    assert state_of(session(one_spark), ours) == state_of(session(one_spark), stock)
