"""Workloads and settings: derived sizes, figures that no job can have, and how many keys differ.

Spark's requests are those that were counted, and cost what was computed from the counts.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import ConfigError, MaterializeConfig
from tidelog.cost.model.estimate import Estimate, Strategy
from tidelog.cost.model.settings import Settings, StoreLink
from tidelog.cost.model.spark import MAINTENANCE_S, SparkOptions, estimate_spark, spark_counts
from tidelog.cost.model.usage import DAY_S, MONTH_S
from tidelog.cost.model.workload import Workload, expected_distinct
from tidelog.cost.prices import bill, built_in_books
from tidelog.spark.plugin.options import OPTIONS


def test_a_row_and_a_change_are_as_docs_format_says() -> None:
    workload = Workload(1, 1_000, key_bytes=16, value_bytes=100, compression=0.5)
    assert workload.row_bytes == 2 + 2 + 16 + 100
    assert workload.raw_change_bytes == workload.row_bytes + 1 + 4 + 4
    assert workload.change_bytes == workload.raw_change_bytes / 2
    assert workload.table_bytes == 1_000 * workload.row_bytes


def test_a_state_that_compresses_has_smaller_rows_in_its_table() -> None:
    assert Workload(1, 1_000, state_bytes=50_000).table_row_bytes == 50


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"writes_per_s": 0}, "write rate"),
        ({"keys": 0}, "keys"),
        ({"skew": -0.1}, "skew"),
        ({"compression": 1.1}, "compression"),
        ({"compression": 0}, "compression"),
        ({"state_bytes": 0}, "state's size"),
        ({"value_bytes": -1}, "value"),
    ],
)
def test_a_workload_out_of_range_is_refused(change: dict[str, float], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Workload(**{"writes_per_s": 1, "keys": 1, **change})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"parallelism": 1, "processes": 2}, "parallelism"),
        ({"processes": 0}, "processes"),
        ({"retain": 0}, "retained"),
        ({"checkpoint_interval": 0}, "checkpoint interval"),
        ({"restores_per_month": -1}, "restores"),
        ({"link": StoreLink(bytes_per_s=0)}, "bandwidth"),
        ({"link": StoreLink(latency_s=-1)}, "latency"),
        ({"materialize": MaterializeConfig(interval=0)}, "materialization interval"),
    ],
)
def test_settings_out_of_range_are_refused(change: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Settings(**change)  # type: ignore[arg-type]


def test_sources_are_as_many_as_subtasks_with_state_unless_told() -> None:
    assert Settings(parallelism=6, processes=2).sources_per_process == 3
    assert Settings(parallelism=6, processes=2, sources=2).sources_per_process == 1


def summed(keys: int, skew: float, draws: int) -> float:
    weights = [rank**-skew for rank in range(1, keys + 1)]
    total = sum(weights)
    return sum(1 - (1 - weight / total) ** draws for weight in weights)


@pytest.mark.parametrize("skew", [0.0, 0.3, 0.8, 1.0, 1.3, 2.5])
@pytest.mark.parametrize(("keys", "draws"), [(50, 400), (3_000, 1_000), (40_000, 200_000)])
def test_the_closed_form_is_the_sum_over_all_ranks(keys: int, draws: int, skew: float) -> None:
    assert expected_distinct(keys, skew, draws) == pytest.approx(
        summed(keys, skew, draws), rel=1e-4
    )


@given(
    keys=st.integers(1, 10**9), skew=st.floats(0, 3), draws=st.floats(0, 1e9), more=st.floats(1, 10)
)
def test_it_never_exceeds_draws_or_keys_and_grows_with_the_draws(
    keys: int, skew: float, draws: float, more: float
) -> None:
    found = expected_distinct(keys, skew, draws)
    assert 0 <= found <= min(keys, max(draws, 0)) * (1 + 1e-6)
    assert expected_distinct(keys, skew, draws * more) >= found * (1 - 1e-6)


def test_a_draw_of_many_keys_hits_one_and_half_a_draw_half() -> None:
    assert expected_distinct(1_000, 1.0, 1) == 1
    assert expected_distinct(1_000, 1.0, 0.5) == 0.5
    assert expected_distinct(1, 0.0, 1e6) == 1


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
