"""The closed formulas of costs: rules of thumb, distinct keys, the life of segments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cost.model.embedded import estimate_changelog, estimate_incremental
from tidelog.cost.model.formulas import (
    Retention,
    log_peak_bytes,
    replay_age_s,
    segment_life_s,
    window_log_peak_bytes,
)
from tidelog.cost.model.job import Settings, StoreLink, Workload, expected_distinct
from tidelog.materialize.schedule import MaterializeConfig

WORKLOAD = Workload(20_000, 5_000_000, skew=1.0, compression=0.6)


def settings(interval: float = 20.0, replay_target: float = 2.0, **changes: object) -> Settings:
    config = MaterializeConfig(interval=interval, replay_target=replay_target)
    return Settings(**{"parallelism": 4, "materialize": config, **changes})  # type: ignore[arg-type]


def test_the_rule_of_thumb_is_the_log_of_an_interval_and_the_peak_knows_retention() -> None:
    for retain in (1, 3, 10):
        estimate = estimate_changelog(WORKLOAD, settings(retain=retain))
        log = estimate.log
        assert log is not None and estimate.checkpoint_s is not None
        per_change = log.bytes_per_s / log.changes_per_s
        assert log.rule_of_thumb_bytes == log_peak_bytes(log.changes_per_s, per_change, 20.0)
        kept_s = log.peak_bytes / log.bytes_per_s - 20.0
        assert kept_s == pytest.approx(retain * 1.0, abs=1.5)  # and the time an upload takes


FAST = Workload(500_000, 2_000_000, value_bytes=20)
LARGE = Workload(100_000, 5_000_000, value_bytes=1_000)


@pytest.mark.parametrize(
    ("workload", "chosen", "trigger", "warning"),
    [
        (FAST, settings(600, 2, link=StoreLink(bytes_per_s=1e9)), "replay time", "replay time"),
        (
            Workload(50_000, 10_000, value_bytes=1_000),
            *(settings(3_600, 1e9), "log size", "before their interval of 3600 s"),
        ),
        (WORKLOAD, settings(5, link=StoreLink(4e6)), "bandwidth", "cannot be uploaded within"),
        (LARGE, settings(link=StoreLink(20e6)), "bandwidth", "the link is too slow"),
        (WORKLOAD, settings(), "interval", None),
    ],
)
def test_what_comes_before_the_interval_is_named_and_warned_of(
    workload: Workload, chosen: Settings, trigger: str, warning: str | None
) -> None:
    estimate = estimate_changelog(workload, chosen)
    assert estimate.trigger == trigger
    assert bool(estimate.warnings) == (warning is not None)
    assert warning is None or any(warning in said for said in estimate.warnings)


def test_without_changelog_a_checkpoint_of_large_state_takes_longer_than_its_interval() -> None:
    large = Workload(100_000, 50_000_000)
    estimate = estimate_incremental(large, settings())
    assert estimate.checkpoint_s is not None
    assert estimate.cycle_s >= estimate.checkpoint_s > 1
    assert "more than its interval" in estimate.warnings[0]
    on = estimate_changelog(large, settings(600, 1e9))
    assert on.checkpoint_s is not None and on.checkpoint_s < 1
    assert on.usage.uploaded_per_s < estimate.usage.uploaded_per_s / 2


def test_the_rules_of_thumb_are_their_formulas() -> None:
    assert log_peak_bytes(10_000, 50, 600) == 300e6
    # 100 windows a second of 60 bytes, each with a timer of 30, cut every 10 minutes.
    assert window_log_peak_bytes(100 + 100, (60 + 30) / 2, 600) == 2 * 100 * (60 + 30) * 600


def test_a_segment_lives_until_its_last_subtask_has_materialized_and_no_checkpoint_names_it() -> (
    None
):
    retention = Retention(checkpoints=3, cycle_s=1.0, checkpoint_s=0.0)
    # Alone: half a period on average. With many others: nearly a whole one.
    assert segment_life_s(60, 1, 0, 0, retention) == pytest.approx(30 + 2.5)
    assert segment_life_s(60, 60, 0, 0, retention) == pytest.approx(59.5 + 2.5)
    # A foreign turn does not cut it.
    assert segment_life_s(60, 1, 1, 0, retention) == pytest.approx(30 + 2.5)
    assert replay_age_s(60, 1, 5) == 65
    assert replay_age_s(60, 60, 5) == pytest.approx(35.5)


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
