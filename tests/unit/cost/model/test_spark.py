"""Spark's requests are those that were counted, and cost what was computed from the counts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tidelog.cost.model.estimate import Estimate, Strategy
from tidelog.cost.model.settings import Settings
from tidelog.cost.model.spark import MAINTENANCE_S, SparkOptions, estimate_spark, spark_counts
from tidelog.cost.model.usage import DAY_S, MONTH_S
from tidelog.cost.model.workload import Workload
from tidelog.cost.prices import bill, built_in_books
from tidelog.spark.plugin.options import OPTIONS

RESULTS = Path(__file__).parents[4] / "benchmarks" / "results" / "decisions" / "spark_bill.jsonl"
WORKLOAD = Workload(10_000, 20_011, key_bytes=200, value_bytes=8)
CLUSTER = Settings(parallelism=200, processes=10, restores_per_month=0)
AS_RECORDED = SparkOptions(snapshot_interval_s=0)
"""The plug-in of the record took snapshots as often as Spark."""


def dollars_a_day(estimate: Estimate) -> float:
    found = bill(built_in_books()["aws-s3-standard"], estimate.usage)
    return (found.put + found.list + found.get + found.delete) / MONTH_S * DAY_S


@pytest.mark.parametrize(
    ("strategy", "recorded"),
    [(Strategy.SPARK_CHANGELOG, "stock"), (Strategy.SPARK_TIDELOG, "tidelog")],
)
def test_the_recorded_bill_comes_out(strategy: Strategy, recorded: str) -> None:
    result = json.loads(RESULTS.read_text().splitlines()[0])["result"]
    estimate = estimate_spark(strategy, WORKLOAD, CLUSTER, AS_RECORDED)
    dollars = result["dollars_per_day"][recorded]["median"]
    assert dollars_a_day(estimate) == pytest.approx(dollars, rel=0.01)
    puts = result["puts_per_day"][recorded]["median"]
    assert estimate.usage.puts_per_s * DAY_S == pytest.approx(puts, rel=0.01)


@pytest.mark.parametrize(
    ("strategy", "rename", "dollars"),
    [
        (Strategy.SPARK_HDFS, False, 93),
        (Strategy.SPARK_HDFS, True, 182),
        (Strategy.SPARK_ROCKSDB, False, 192),
        (Strategy.SPARK_ROCKSDB, True, 280),
    ],
)
def test_other_stores_cost_what_their_counts_do(
    strategy: Strategy, rename: bool, dollars: int
) -> None:
    # 86,400 batches x requests per batch of 200 partitions, at 0.005 and 0.0004 per 1,000.
    estimate = estimate_spark(strategy, WORKLOAD, CLUSTER, SparkOptions(rename=rename))
    assert dollars_a_day(estimate) == pytest.approx(dollars, rel=0.01)


def test_requests_grow_with_partitions_but_not_with_the_plug_in() -> None:
    def puts(strategy: Strategy, partitions: int) -> float:
        settings = replace(CLUSTER, parallelism=partitions)
        usage = estimate_spark(strategy, WORKLOAD, settings).usage
        return sum(flow.per_s for flow in usage.flows if flow.kind in ("changelog", "segment"))

    assert puts(Strategy.SPARK_CHANGELOG, 400) == 2 * puts(Strategy.SPARK_CHANGELOG, 200)
    assert puts(Strategy.SPARK_TIDELOG, 400) == puts(Strategy.SPARK_TIDELOG, 200)


@pytest.mark.parametrize(
    ("batch_s", "batches"), [(10.0, 20), (5.0, 40), (2.0, 80), (1.0, 160), (0.5, 160), (60.0, 10)]
)
def test_the_plug_in_spaces_snapshots_as_docs_spark_says(batch_s: float, batches: int) -> None:
    settings = replace(CLUSTER, checkpoint_interval=batch_s)
    estimate = estimate_spark(Strategy.SPARK_TIDELOG, WORKLOAD, settings)
    assert estimate.materialize_s == max(MAINTENANCE_S, batches * batch_s)


def test_that_interval_is_the_default_of_the_plug_in() -> None:
    (option,) = (option for option in OPTIONS if option.argument == "snapshot_interval")
    assert option.default == "4min"
    assert SparkOptions().snapshot_interval_s == 4 * 60


def test_every_store_says_where_its_counts_are_from() -> None:
    counts = spark_counts()
    assert set(counts) == {strategy for strategy in Strategy if strategy.startswith("spark")}
    for store in counts.values():
        assert store.source
        assert {"offsets", "commits"} <= {file.name for file in store.files}
