"""When tables are uploaded: evenly spread, on time, early when the log grows too long."""

from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tidelog.materialize.config import MaterializeConfig
from tidelog.materialize.schedule import (
    Observed,
    Reason,
    finish_by,
    first_due,
    next_due,
    reason_to_start,
)

CONFIG = MaterializeConfig(
    interval=100.0, log_factor=4.0, min_log_bytes=1000, replay_target=10.0, replay_rate=50.0
)


@given(st.integers(1, 200), st.floats(1.0, 1e6), st.floats(0.0, 1e6))
def test_subtasks_are_spread_evenly_and_never_due_together(
    subtasks: int, interval: float, start: float
) -> None:
    due = [first_due(rank, subtasks, interval, start) for rank in range(subtasks)]
    assert all(start < d <= start + interval * 1.000001 for d in due)
    gaps = [b - a for a, b in pairwise(due)]
    assert gaps == pytest.approx([interval / subtasks] * (subtasks - 1), rel=1e-3, abs=1e-3)


@given(st.floats(0, 1e6), st.floats(0.1, 1e4), st.floats(0, 1e6))
def test_a_subtask_stays_on_its_phase_however_late_it_is(
    due: float, interval: float, late: float
) -> None:
    following = next_due(due, interval, due + late)
    assert following >= due + late
    assert following - (due + late) <= interval * 1.001
    periods = (following - due) / interval
    assert periods == pytest.approx(round(periods), abs=1e-3)


@pytest.mark.parametrize(
    ("observed", "now", "reason"),
    [
        (Observed(changes=0, log_bytes=10**9, table_bytes=1), 500.0, None),
        (Observed(changes=1, log_bytes=10, table_bytes=10), 99.9, None),
        (Observed(changes=1, log_bytes=10, table_bytes=10), 100.0, Reason.INTERVAL),
        (Observed(changes=500, log_bytes=10, table_bytes=10), 1.0, None),
        (Observed(changes=501, log_bytes=10, table_bytes=10), 1.0, Reason.REPLAY_TIME),
        (Observed(changes=9, log_bytes=1001, table_bytes=300), 1.0, None),
        (Observed(changes=9, log_bytes=1000, table_bytes=1), 1.0, None),
        (Observed(changes=9, log_bytes=1001, table_bytes=250), 1.0, Reason.LOG_SIZE),
    ],
)
def test_each_trigger_starts_at_its_limit_and_not_before(
    observed: Observed, now: float, reason: Reason | None
) -> None:
    assert reason_to_start(CONFIG, observed, due=100.0, now=now) is reason


def test_an_upload_waits_for_others_no_longer_than_a_share_of_its_interval() -> None:
    assert finish_by(due=100.0, interval=40.0, now=101.0) == 110.0
    early = finish_by(due=100.0, interval=40.0, now=50.0)
    assert early == 60.0, "a trigger that came before the interval counts from now"
