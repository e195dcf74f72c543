"""When an aligned checkpoint becomes an unaligned one; without a stage it does so too late."""

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from tests.property.profiles import looking
from tidelog.ids import CheckpointId
from tidelog.runtime.channels.messages import Barrier
from tidelog.runtime.tasks.alignment import Aligned, Alignment, Switching

ONE, TWO = CheckpointId(1), CheckpointId(2)
STAGES = Switching(timeout=60.0)
BARRIER = Barrier(ONE, started=0.0, order="may-switch")


def task(channels: int = 2, **settings: Any) -> Alignment:
    return Alignment(channels, exactly_once=True, switching=STAGES, **settings)


def test_stage_one_a_task_that_aligns_for_too_long_switches() -> None:
    alignment = task()
    assert alignment.barrier(0, BARRIER, 50.0) == Aligned(block=True)
    assert alignment.deadline == 60.0
    assert alignment.announced(BARRIER, 59.9) == Aligned()
    assert alignment.announced(BARRIER, 60.0) == Aligned(unblock=True, overtake=True)
    assert alignment.reached == {0}, "what comes behind its barrier is not in flight"


def test_stage_two_ten_tasks_of_59_s_switch_after_60_s_and_not_after_590() -> None:
    first, second = task(), task()
    assert first.barrier(0, BARRIER, 0.0) == Aligned(block=True)
    assert first.barrier(1, BARRIER, 59.0).complete
    assert second.barrier(0, BARRIER, 59.0) == Aligned(block=True)
    assert second.deadline == 60.0
    assert second.announced(BARRIER, 60.0).overtake


def test_channels_that_stay_aligned_are_waited_for_and_others_are_not() -> None:
    alignment = task(3, stay_aligned={1})
    overtaking = replace(BARRIER, order="unaligned")
    assert alignment.announced(overtaking, 0.0) == Aligned()
    assert alignment.barrier(0, overtaking, 1.0) == Aligned(block=True)
    assert alignment.barrier(1, overtaking, 2.0) == Aligned(unblock=True, overtake=True)


@looking(100)
@given(st.data(), st.integers(1, 4), st.sampled_from(["may-switch", "unaligned"]))
def test_every_interleaving_takes_each_snapshot_once_and_leaves_no_channel_blocked(
    data: st.DataObject, channels: int, order: Any
) -> None:
    """Announcements come before their barriers are reached, time passes as it likes."""
    stay = data.draw(st.sets(st.integers(0, channels - 1)))
    alignment = task(channels, stay_aligned=stay)
    announced, reached = [0] * channels, [0] * channels
    blocked: set[int] = set()
    taken: list[int] = []
    now = 0.0

    def follow(decision: Aligned, checkpoint: int) -> None:
        if decision.unblock:
            blocked.clear()
        if decision.complete or decision.overtake:
            assert checkpoint not in taken
            if decision.overtake:
                assert all(reached[channel] >= checkpoint for channel in stay)
            taken.append(checkpoint)

    last = 4
    while min(reached) < last:
        now += data.draw(st.floats(0, 50))
        may_announce = [c for c in range(channels) if announced[c] < last]
        may_reach = [c for c in range(channels) if c not in blocked and reached[c] < announced[c]]
        assert may_announce or may_reach, "a deadlock"
        channel, announce = data.draw(
            st.sampled_from([(c, True) for c in may_announce] + [(c, False) for c in may_reach])
        )
        if announce:
            announced[channel] += 1
            number = announced[channel]
            decision = alignment.announced(_barrier(number, order), now)
        else:
            reached[channel] += 1
            number = reached[channel]
            decision = alignment.barrier(channel, _barrier(number, order), now)
            if decision.block:
                blocked.add(channel)
        follow(decision, number)
    assert blocked == set()
    assert taken == sorted(taken)
    assert taken[-1:] == [last]


def _barrier(number: int, order: Any) -> Barrier:
    return Barrier(CheckpointId(number), 20.0 * number, order=order)
