"""Buffers are flushed when the runtime flushes them, segments leave when the uploader lets them."""

import pytest

from tidelog.cost.model.formulas import (
    Retention,
    log_peak_bytes,
    replay_age_s,
    segment_life_s,
    window_log_peak_bytes,
)


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
