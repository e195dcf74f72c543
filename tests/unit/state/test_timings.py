"""Phases of a restore: what overlaps counts once."""

from contextlib import suppress

from tests.support.clock import VirtualClock
from tidelog.state.restore.progress import RestoreTimings


def test_time_that_two_spend_in_a_phase_side_by_side_counts_once_also_when_one_fails() -> None:
    clock = VirtualClock(auto=False)
    timings = RestoreTimings(clock)
    with timings.download, timings.fetch_log:
        clock.spend(2)
        with suppress(ValueError), timings.download:
            clock.spend(3)
            raise ValueError
        assert timings.download.seconds == 5
        clock.spend(4)
    clock.spend(10)
    with timings.download:
        clock.spend(1)
    found = (timings.download, timings.fetch_log, timings.open, timings.replay)
    assert [each.seconds for each in found] == [10, 9, 0, 0]
