"""Snapshots follow what was uploaded: a query in short runs has them in every period, and its
checkpoint stays small.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.support import stores
from tests.spark.support.application import Application, Job
from tests.spark.support.faults import settings
from tests.spark.support.place import Place
from tests.spark.support.short_runs import (
    BATCHES,
    MIN_DELTAS,
    PER_RUN,
    RUNS,
    STORES,
    left_by,
    session,
    snapshots_in,
)
from tests.spark.support.zoo.aggregations import TOTALS
from tests.support.depth import only_in_depth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.plugin_only


def state_of(spark: "SparkSession", place: Place) -> list[tuple[object, ...]]:
    frame = spark.read.format("statestore").load(str(place.checkpoint))
    return sorted((row.partition_id, row.key.k, *row.value) for row in frame.collect())


def run(tmp_path: Path, ours: Place, stock: Place, **extra: object) -> Application:
    """Runs in one process, which has a Spark for each of them."""
    given = stores.store_settings()
    given |= settings(tmp_path / "no-faults", given.get("spark.jars", "")) | stores.INTERPRETED
    jobs = (Job(ours, TOTALS.name), Job(stock, TOTALS.name))
    module = "tests.spark.support.short_runs"
    with Application(jobs, given, module=module, extra=extra) as application:
        application.finish()
    return application


def assert_bounded(spark: "SparkSession", ours: Place, stock: Place) -> None:
    left, alone = left_by(ours), left_by(stock)
    assert [one.newest for one in left] == [PER_RUN * (run + 1) for run in range(RUNS)]
    lags = [one.newest - min(one.uploaded) for one in left]
    assert max(lags) < MIN_DELTAS + PER_RUN, lags
    # Three versions are retained, and what a period before the oldest of them needs.
    files, files_alone = [one.files for one in left], [one.files for one in alone]
    assert max(files) < 12 * STORES < files_alone[-1] // 2, (files, files_alone)
    assert TOTALS.result(ours.rows()) == TOTALS.expected(BATCHES)
    assert not (stock.checkpoint / "_tidelog").exists()
    assert state_of(session(spark, stock=False), ours) == state_of(
        session(spark, stock=True), stock
    )


def test_runs_that_end_before_their_first_maintenance_have_snapshots_and_keep_few_files(
    one_spark: "SparkSession", tmp_path: Path
) -> None:
    ours, stock = Place(tmp_path / "ours"), Place(tmp_path / "stock")
    run(tmp_path, ours, stock, runs=list(range(RUNS)))
    assert_bounded(one_spark, ours, stock)


def test_a_run_that_goes_on_removes_the_snapshots_that_nothing_needs(
    one_spark: "SparkSession", tmp_path: Path
) -> None:
    ours, stock, batches = Place(tmp_path / "ours"), Place(tmp_path / "stock"), 14
    more = {
        "spark.sql.streaming.stateStore.maintenanceInterval": "100ms",
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1",
    }
    run(tmp_path, ours, stock, runs=[0], per_run=batches, more=more)
    for place in (ours, stock):
        for versions in snapshots_in(place):
            assert versions[0] > batches // 2, versions
            assert len(versions) < 6, versions
    assert state_of(session(one_spark, stock=False), ours) == state_of(
        session(one_spark, stock=True), stock
    )


@only_in_depth("nothing of the plug-in decides it")
def test_spark_reports_the_stores_that_lag_and_forces_their_snapshots_as_without_the_plug_in(
    one_spark: "SparkSession", tmp_path: Path
) -> None:
    ours, stock = Place(tmp_path / "ours"), Place(tmp_path / "stock")
    # From a lag of five periods on; no maintenance comes.
    more = {"spark.sql.streaming.stateStore.minDeltasForSnapshot": "1"}
    log = run(tmp_path, ours, stock, runs=[0], per_run=10, more=more).log()
    lagging = re.findall(r"Lag Detected for queryRunId=(\S+) .*partitionId=(\d+)", log)
    assert {store for _, store in lagging} == {str(store) for store in range(STORES)}
    assert len(lagging) == 2 * STORES and len({query for query, _ in lagging}) == 2, log
    for place in (ours, stock):
        assert min(left_by(place)[0].uploaded) > 5, left_by(place)
