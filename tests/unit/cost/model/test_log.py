"""Buffers are flushed when the runtime flushes them, segments leave when the uploader lets them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import FlushConfig, UploadConfig
from tidelog.changelog.cadence import FLUSH_LEAD_S, UPLOAD_LEAD_S
from tidelog.cost.model.formulas import (
    Retention,
    log_peak_bytes,
    replay_age_s,
    segment_life_s,
    window_log_peak_bytes,
)
from tidelog.cost.model.log import LogCycle, flushes, log_cycle
from tidelog.cost.model.settings import Settings, StoreLink
from tidelog.cost.model.workload import Workload

COLD = Workload(1_000, 10_000_000)
HOT = Workload(100_000, 1_000)
FAST = Workload(10_000_000, 10**9, key_bytes=4, value_bytes=4)
UPLOAD = UploadConfig()
INSTANT = StoreLink(bytes_per_s=1e12, latency_s=0.0)


@pytest.mark.parametrize(
    ("workload", "config", "cycle_s", "count", "ahead_s", "barrier_s"),
    [
        pytest.param(COLD, FlushConfig(), 1.0, 0, 1 - FLUSH_LEAD_S, FLUSH_LEAD_S, id="cold"),
        pytest.param(HOT, FlushConfig(), 1.0, 0, 0.0, 1.0, id="hot rows wait for the barrier"),
        pytest.param(COLD, FlushConfig(max_age=1.0), 3.5, 3, 0.4, 0.1, id="by age"),
        pytest.param(
            Workload(1_000, 10_000_000, key_bytes=0, value_bytes=10_000 - 13),
            FlushConfig(bytes=1_000_000),
            *(0.35, 3, 0.0, 0.05),
            id="by bytes",
        ),
    ],
)
def test_buffers_are_flushed_by_limits_ahead_of_a_checkpoint_and_at_its_barrier(
    workload: Workload,
    config: FlushConfig,
    cycle_s: float,
    count: int,
    ahead_s: float,
    barrier_s: float,
) -> None:
    found = flushes(workload, 1, config, cycle_s)
    assert found.count == count
    assert (found.ahead_s, found.barrier_s) == pytest.approx((ahead_s, barrier_s), abs=0.01)
    assert count * found.span_s + found.ahead_s + found.barrier_s == pytest.approx(cycle_s)


def test_a_buffer_of_many_rows_leaves_by_their_number() -> None:
    fast = Workload(200_000, 10_000_000, key_bytes=4, value_bytes=4)
    one, four = (flushes(fast, subtasks, FlushConfig(rows=50_000), 10) for subtasks in (1, 4))
    assert one.span_s == pytest.approx(0.25, rel=0.01)
    assert four.span_s == pytest.approx(1.0, rel=0.05)
    assert flushes(FAST, 1, FlushConfig(), 600.0).all_rows == pytest.approx(6e9, rel=0.01)


def cycle(
    bytes_per_s: float, cycle_s: float = 1.0, *, sources: int = 0, link: StoreLink = INSTANT
) -> LogCycle:
    """The log of cold rows of one subtask."""
    rows_per_s = bytes_per_s / Workload(1, 1).raw_change_bytes
    settings = Settings(sources=sources, link=link)
    return log_cycle(Workload(rows_per_s, 10**12), settings, cycle_s)


@pytest.mark.parametrize(
    ("bytes_per_s", "cycle_s", "segments", "inline"),
    [
        pytest.param(300_000, 1.0, 2, 0, id="a large tail is a segment of its own"),
        pytest.param(100_000, 1.0, 1, 10_000, id="a small tail goes with the next segment"),
        pytest.param(6_000, 1.0, 1 / 4, 9_000, id="tails gather until they are worth a segment"),
        pytest.param(2_000, 1.0, 1 / 10, 9_500, id="small ones for longer"),
        pytest.param(100_000, 4.0, 4, 10_000, id="flushes leave by their age"),
        pytest.param(20 << 20, 10.0, 40, 0, id="a segment that is full leaves at once"),
    ],
)
def test_segments_leave_by_size_by_age_and_ahead_of_a_checkpoint(
    bytes_per_s: float, cycle_s: float, segments: float, inline: float
) -> None:
    found = cycle(bytes_per_s, cycle_s)
    assert found.segments == pytest.approx(segments, rel=0.15)
    assert found.inline_bytes == pytest.approx(inline, rel=0.1)


def test_a_tail_that_would_overtake_a_segment_is_uploaded_too_and_waited_for() -> None:
    near = cycle(100_000, link=StoreLink(bytes_per_s=50e6, latency_s=0.03))
    assert (near.segments, near.waited_s) == pytest.approx((1, UPLOAD.linger))
    # What leaves ahead of the barrier is not stored when the checkpoint asks for it.
    far = cycle(100_000, link=StoreLink(bytes_per_s=50e6, latency_s=0.2))
    assert (far.segments, far.inline_bytes) == pytest.approx((2, 0))
    assert far.waited_s == pytest.approx(UPLOAD.linger + 0.2, rel=0.01)
    # Between them it depends on when the barrier arrives.
    latency_s = UPLOAD_LEAD_S + UPLOAD.linger + 0.01
    assert 1.1 < cycle(100_000, link=StoreLink(50e6, latency_s)).segments < 1.9


def test_sources_share_the_segments_of_tails() -> None:
    assert cycle(100_000, sources=1).shared == 1
    assert cycle(1e6, sources=1).shared == pytest.approx(0.1, abs=0.01)


def test_one_more_flush_logs_hot_rows_once_more_and_cold_ones_not() -> None:
    rows = {
        workload: log_cycle(workload, replace(Settings(), sources=0), 1.0).changes
        - flushes(workload, 1, FlushConfig(), 1.0).all_rows
        for workload in (HOT, COLD)
    }
    interval = Settings().materialize.interval
    assert rows[HOT] * interval == pytest.approx(1_000, rel=0.05)
    assert rows[COLD] * interval == pytest.approx(0, abs=1)


@given(
    writes_per_s=st.floats(0.1, 1e6),
    keys=st.integers(1, 10**8),
    skew=st.floats(0, 1.5),
    subtasks=st.integers(1, 64),
    processes=st.integers(1, 8),
    cycle_s=st.floats(0.05, 600),
)
def test_every_change_is_uploaded_once(
    writes_per_s: float, keys: int, skew: float, subtasks: int, processes: int, cycle_s: float
) -> None:
    workload = Workload(writes_per_s, keys, skew=skew, compression=0.5)
    settings = Settings(parallelism=subtasks * processes, processes=processes)
    log = log_cycle(workload, settings, cycle_s)
    assert log.changes * workload.change_bytes <= log.segment_bytes
    assert log.changes <= writes_per_s * cycle_s / processes * 1.01 + 1
    assert log.segments > 0
    assert 0 <= log.shared <= 1.000_001
    assert log.inline_bytes <= UPLOAD.inline_bytes


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
