"""All stores of a pair get the same settings of Spark, but for those that choose the store."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.errors import TidelogError
from tidelog.spark.plugin.settings import CHANGELOG, FILE_MANAGER, FORMAT, PROVIDER
from tidelog_bench.experiments import spark_bill, spark_commit, spark_restore
from tidelog_bench.measurement import Cell, Measurement, Size, Trial
from tidelog_bench.spark import job as jobs
from tidelog_bench.spark.job import Job
from tidelog_bench.spark.stores import STORES, store_settings, unsupported

CHOOSE = {PROVIDER, CHANGELOG, FORMAT, FILE_MANAGER, "spark.plugins", "spark.jars"}
MEASUREMENTS = [
    spark_commit.MEASUREMENT,
    spark_restore.MEASUREMENT,
    spark_bill.MEASUREMENT,
]


@pytest.fixture(autouse=True)
def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "benchmark_jar", lambda: Path("benchmark.jar"))
    monkeypatch.setattr(jobs, "plugin_jar", lambda **_: Path("plugin.jar"))


def job_of(cell: Cell, variant: str) -> Job:
    return Trial(cell.settings, variant, 7, Path("unused")).read(Job, store=variant)


@pytest.mark.parametrize("measurement", MEASUREMENTS, ids=lambda m: m.name)
@pytest.mark.parametrize("size", Size)
def test_stores_differ_in_what_chooses_them_alone(measurement: Measurement, size: Size) -> None:
    for cell in measurement.cells(size):
        found = {v: job_of(cell, v).settings(Path("room")) for v in cell.variants}
        common = [
            {k: v for k, v in of.items() if k not in CHOOSE and not k.startswith("spark.tidelog")}
            for of in found.values()
        ]
        assert all(one == common[0] for one in common)
        chosen = [{key: of.get(key) for key in CHOOSE} for of in found.values()]
        assert all(chosen.count(one) == 1 for one in chosen)


def test_a_cell_s_knobs_become_settings_of_spark_and_of_the_store() -> None:
    [cell] = spark_commit.cells(Size.QUICK)
    settings = job_of(cell, "changelog").settings(Path("room"))
    assert settings["spark.sql.shuffle.partitions"] == "4"
    assert settings["spark.master"] == "local[*]"  # as many task slots as cores
    assert float(settings["spark.hadoop.fs.counted.latency.ms"]) == 30
    assert float(settings["spark.hadoop.fs.counted.mb.per.s"]) == 50
    assert settings["spark.hadoop.fs.counted.seed"] == "7"
    assert settings["spark.sql.streaming.stateStore.maintenanceInterval"] == "60000ms"


def test_a_store_without_latency_has_no_limit_of_bandwidth_either() -> None:
    cell = next(c for c in spark_commit.cells(Size.FULL) if c.settings["latency_ms"] == 0)
    settings = job_of(cell, "hdfs").settings(Path("room"))
    assert float(settings["spark.hadoop.fs.counted.latency.ms"]) == 0
    assert float(settings["spark.hadoop.fs.counted.mb.per.s"]) == 0


def test_snapshots_below_the_plug_in_are_as_rare_as_four_maintenance_intervals() -> None:
    [cell] = spark_commit.cells(Size.QUICK)
    settings = job_of(cell, "tidelog").settings(Path("room"))
    assert settings["spark.tidelog.snapshot.interval"] == "240000ms"


def test_only_the_hdfs_backed_store_has_a_query_it_cannot_run() -> None:
    queries = spark_commit.QUERIES
    gaps = [(s, q) for s in STORES for q in queries if unsupported(s, q) is not None]
    assert gaps == [("hdfs", "transform")]


def test_spark_s_own_stores_write_atomic_files_with_one_put_and_the_plug_in_its_own_way() -> None:
    managers = [store_settings(store, dict)[FILE_MANAGER] for store in STORES[:-1]]
    assert managers == ["tidelog.benchmark.DirectPutCheckpointFileManager"] * 3
    assert store_settings("tidelog", lambda: {FILE_MANAGER: "the plug-in's"})[FILE_MANAGER] == (
        "the plug-in's"
    )


def test_the_full_matrix_has_all_queries_partitions_and_latencies() -> None:
    found = {
        (query, cell.settings["partitions"], cell.settings["latency_ms"])
        for cell in spark_commit.cells(Size.FULL)
        for query in str(cell.settings["queries"]).split(",")
    }
    assert found == {
        (query, partitions, latency)
        for query in ("aggregation", "window", "join", "transform")
        for partitions in (8, 64, 200)
        for latency in (0, 30)
    } | {("long_keys", 2, 30)}


def test_every_figure_and_curve_that_is_shown_is_one_that_a_trial_gives() -> None:
    shown = {figure.name for figure in spark_commit.EXPERIMENTS[0].figures}
    assert {f"{q}_{n}" for q in spark_commit.QUERIES for n in ("p50_ms", "dollars_per_day")} < shown
    plots: list[Any] = list(spark_commit.EXPERIMENTS[0].plots)
    assert {plot.figure for plot in plots if hasattr(plot, "figure")} <= shown


def test_a_restart_is_told_from_a_query_that_began_anew() -> None:
    reported = [
        {
            "batchId": 13,
            "durationMs": {"triggerExecution": 321},
            "stateOperators": [
                {"customMetrics": {"rocksdbLoadLatencyMs": 6, "rocksdbPutLatency": 1}},
                {"customMetrics": {"rocksdbLoadLatencyMs": 4}},
            ],
        }
    ]
    counts = {("get", "sst"): SimpleNamespace(requests=3, bytes=2_500_000)}
    found = spark_restore.reading(reported, 13, 1.25, counts, 7_000_000)  # type: ignore[arg-type]
    assert found.figures == {
        "restore_ms": 1250.0,
        "first_batch_ms": 321.0,
        "requests": 3.0,
        "downloaded_mb": 2.5,
        "stored_mb": 7.0,
    }
    assert found.notes["stores_ms"] == {"rocksdbLoadLatencyMs": 10}
    with pytest.raises(TidelogError, match="batch 12 as its first"):
        spark_restore.reading(reported, 12, 1.25, counts, 7_000_000)  # type: ignore[arg-type]
