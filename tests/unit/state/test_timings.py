"""Phases of a restore: what overlaps counts once."""

import asyncio

import pytest

from tests.support.clock import VirtualClock
from tidelog.state.restore.progress import PhaseTimer, RestoreTimings


def test_time_that_two_spend_in_a_phase_side_by_side_counts_once() -> None:
    async def steps() -> list[float]:
        clock = VirtualClock(auto=False)
        timer = PhaseTimer(clock)
        seen = [timer.seconds]
        with timer:
            await clock.advance(2)
            with timer:
                await clock.advance(3)
            seen.append(timer.seconds)
            await clock.advance(4)
        await clock.advance(10)
        with timer:
            await clock.advance(1)
        return [*seen, timer.seconds]

    assert asyncio.run(steps()) == [0, 5, 10]


def test_the_time_of_a_phase_that_fails_counts() -> None:
    clock = VirtualClock(auto=False)
    timer = PhaseTimer(clock)

    def fail() -> None:
        with timer:
            clock.spend(3)
            raise ValueError

    with pytest.raises(ValueError):
        fail()
    clock.spend(1)
    assert timer.seconds == 3


def test_phases_are_timed_apart() -> None:
    clock = VirtualClock(auto=False)
    timings = RestoreTimings(clock)
    with timings.download:
        clock.spend(2)
        with timings.fetch_log:
            clock.spend(1)
    assert (timings.download.seconds, timings.fetch_log.seconds) == (3, 1)
    assert (timings.open.seconds, timings.replay.seconds) == (0, 0)
