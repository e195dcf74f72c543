"""Write buffers are flushed when the runtime flushes them."""

import pytest

from tidelog.changelog.cadence import FLUSH_LEAD_S
from tidelog.cost.model.flushes import flushes, longest_span, rows_split
from tidelog.cost.model.workload import Workload
from tidelog.state.config import FlushConfig

COLD = Workload(1_000, 10_000_000)
HOT = Workload(100_000, 1_000)


def test_cold_rows_leave_ahead_of_a_checkpoint_and_at_its_barrier() -> None:
    found = flushes(COLD, 1, FlushConfig(), 1.0)
    assert [flush.at for flush in found] == pytest.approx([1 - FLUSH_LEAD_S, 1.0])
    assert sum(flush.rows for flush in found) == pytest.approx(1_000, rel=0.001)


def test_hot_rows_wait_for_the_barrier() -> None:
    (flush,) = flushes(HOT, 1, FlushConfig(), 1.0)
    assert flush.at == 1.0
    assert flush.rows == pytest.approx(1_000)


def test_old_rows_leave_by_their_age() -> None:
    found = flushes(COLD, 1, FlushConfig(max_age=1.0), 3.5)
    assert [flush.at for flush in found] == pytest.approx([1.0, 2.0, 3.0, 3.4, 3.5])


def test_a_buffer_of_many_rows_leaves_by_their_number() -> None:
    fast = Workload(200_000, 10_000_000, key_bytes=4, value_bytes=4)
    config = FlushConfig(rows=50_000)
    assert longest_span(fast, 1, config) == pytest.approx(0.25, rel=0.01)
    assert longest_span(fast, 4, config) == pytest.approx(1.0, rel=0.05)


def test_a_buffer_of_large_rows_leaves_by_their_bytes() -> None:
    large = Workload(1_000, 10_000_000, key_bytes=0, value_bytes=10_000 - 13)
    assert longest_span(large, 1, FlushConfig(bytes=1_000_000)) == pytest.approx(0.1, rel=0.01)


def test_all_flushes_of_a_long_cycle_are_counted() -> None:
    fast = Workload(10_000_000, 10**9, key_bytes=4, value_bytes=4)
    found = flushes(fast, 1, FlushConfig(), 600.0)
    assert sum(flush.span * flush.times for flush in found) == pytest.approx(600.0)
    assert sum(flush.rows * flush.times for flush in found) == pytest.approx(6e9, rel=0.01)


def test_one_more_flush_logs_hot_rows_once_more_and_cold_ones_not() -> None:
    assert rows_split(HOT, flushes(HOT, 1, FlushConfig(), 1.0)) == pytest.approx(1_000, rel=0.05)
    assert rows_split(COLD, flushes(COLD, 1, FlushConfig(), 1.0)) == pytest.approx(0, abs=1)
