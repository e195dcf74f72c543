"""When tables are uploaded and how they share the link."""

import asyncio
import contextlib
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.support.clock import VirtualClock
from tidelog.materialize.pacing import HELD_BYTES, TRANSFERS, Pace, UploadSlots
from tidelog.materialize.schedule import (
    MaterializeConfig,
    Observed,
    finish_by,
    first_due,
    is_due,
    next_due,
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
    ("observed", "now", "starts"),
    [
        (Observed(changes=0, log_bytes=10**9, table_bytes=1), 500.0, False),
        (Observed(changes=1, log_bytes=10, table_bytes=10), 99.9, False),
        (Observed(changes=1, log_bytes=10, table_bytes=10), 100.0, True),
        (Observed(changes=500, log_bytes=10, table_bytes=10), 1.0, False),
        (Observed(changes=501, log_bytes=10, table_bytes=10), 1.0, True),
        (Observed(changes=9, log_bytes=1001, table_bytes=300), 1.0, False),
        (Observed(changes=9, log_bytes=1000, table_bytes=1), 1.0, False),
        (Observed(changes=9, log_bytes=1001, table_bytes=250), 1.0, True),
    ],
)
def test_each_trigger_starts_at_its_limit_and_not_before(
    observed: Observed, now: float, starts: bool
) -> None:
    assert is_due(CONFIG, observed, due=100.0, now=now) is starts


def test_an_upload_waits_for_others_no_longer_than_a_share_of_its_interval() -> None:
    assert finish_by(due=100.0, interval=40.0, now=101.0) == 110.0
    early = finish_by(due=100.0, interval=40.0, now=50.0)
    assert early == 60.0, "a trigger that came before the interval counts from now"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


async def test_each_transfer_pays_for_its_bytes_before_the_next_one(clock: VirtualClock) -> None:
    pace = Pace(clock, 100.0)
    times = []
    for _ in range(4):
        await pace.spend(50)
        times.append(clock.monotonic())
    assert times == [0.0, 0.5, 1.0, 1.5]


async def test_a_lane_holds_few_files_and_few_bytes_in_the_order_they_came() -> None:
    clock = VirtualClock(auto=False)
    upload_slots = UploadSlots(clock)
    inside: list[int] = []

    async def transfer(number: int, size: int) -> None:
        async with upload_slots.slot(size, None):
            inside.append(number)
            await clock.sleep(1.0)
            inside.remove(number)

    sizes = [1] * (TRANSFERS + 1) + [2 * HELD_BYTES, 1]
    each = [asyncio.ensure_future(transfer(*item)) for item in enumerate(sizes)]
    seen = []
    for _ in range(4):
        await clock.advance(0.5)
        seen.append(sorted(inside))
        await clock.advance(0.5)
    first = list(range(TRANSFERS))
    assert seen == [first, [TRANSFERS], [TRANSFERS + 1], [TRANSFERS + 2]]
    await asyncio.gather(*each)
    assert upload_slots.link.held_bytes == 0


async def test_a_place_is_free_again_when_its_transfer_fails_or_is_cancelled(
    clock: VirtualClock,
) -> None:
    upload_slots = UploadSlots(clock)
    for _ in range(2 * TRANSFERS):
        with contextlib.suppress(OSError):
            async with upload_slots.slot(1, None):
                raise OSError("the store is away")
    holding = [upload_slots.slot(HELD_BYTES, None) for _ in range(2)]
    await holding[0].__aenter__()
    waiting = asyncio.ensure_future(holding[1].__aenter__())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await holding[0].__aexit__(None, None, None)
    async with upload_slots.slot(HELD_BYTES, None):
        assert upload_slots.link.held_bytes == HELD_BYTES
