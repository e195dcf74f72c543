"""Workloads and settings: derived sizes, figures that no job can have, and how many keys differ."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import ConfigError, MaterializeConfig
from tidelog.cost.model.settings import Settings, StoreLink
from tidelog.cost.model.workload import Workload, expected_distinct


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
