"""Alignment blocks what it must and nothing longer than it must."""

import hypothesis.strategies as st
from hypothesis import given

from tests.property.profiles import looking
from tidelog.ids import CheckpointId
from tidelog.runtime.channels.messages import Barrier
from tidelog.runtime.tasks.alignment import Aligned, Alignment, Switching

ONE, TWO = CheckpointId(1), CheckpointId(2)
NOTHING = Aligned()


def exactly_once(channels: int) -> Alignment:
    return Alignment(channels, exactly_once=True)


def reached(alignment: Alignment, channel: int, checkpoint: CheckpointId) -> Aligned:
    return alignment.barrier(channel, Barrier(checkpoint, 0.0), 0.0)


def test_exactly_once_blocks_a_channel_until_the_barrier_came_on_all() -> None:
    alignment = exactly_once(3)
    assert reached(alignment, 0, ONE) == Aligned(block=True)
    assert reached(alignment, 2, ONE) == Aligned(block=True)
    assert alignment.aligning == ONE
    assert reached(alignment, 1, ONE) == Aligned(unblock=True, complete=True)
    assert alignment.aligning is None


def test_at_least_once_never_blocks() -> None:
    alignment = Alignment(3, exactly_once=False)
    decisions = [reached(alignment, channel, ONE) for channel in (0, 2, 1)]
    assert decisions == [NOTHING, NOTHING, Aligned(complete=True)]


def test_with_one_channel_both_modes_snapshot_at_once() -> None:
    for mode in (True, False):
        decision = reached(Alignment(1, exactly_once=mode), 0, ONE)
        assert decision.complete and not decision.block


def test_an_input_that_never_aligns_stays_blocked_only_until_the_abort() -> None:
    alignment = exactly_once(2)
    reached(alignment, 0, ONE)
    assert alignment.abort(ONE) == Aligned(unblock=True)
    assert alignment.aligning is None


def test_a_late_barrier_of_an_aborted_checkpoint_blocks_nothing() -> None:
    alignment = exactly_once(2)
    reached(alignment, 0, ONE)
    alignment.abort(ONE)
    assert reached(alignment, 1, ONE) == NOTHING
    assert reached(alignment, 0, TWO) == Aligned(block=True)
    assert reached(alignment, 1, TWO) == Aligned(unblock=True, complete=True)


def test_a_barrier_behind_its_own_abort_blocks_nothing() -> None:
    alignment = exactly_once(2)
    assert alignment.abort(ONE) == NOTHING
    assert reached(alignment, 0, ONE) == NOTHING
    assert reached(alignment, 1, ONE) == NOTHING


def test_a_barrier_that_comes_twice_counts_once() -> None:
    alignment = exactly_once(2)
    reached(alignment, 0, ONE)
    assert not reached(alignment, 0, ONE).complete
    reached(alignment, 1, ONE)
    assert reached(alignment, 0, ONE) == NOTHING
    assert reached(alignment, 1, ONE) == NOTHING


def test_a_newer_checkpoint_ends_half_an_alignment() -> None:
    alignment = exactly_once(3)
    reached(alignment, 0, ONE)
    assert reached(alignment, 1, TWO) == Aligned(block=True, unblock=True)
    assert reached(alignment, 2, ONE) == NOTHING
    assert alignment.aligning == TWO
    assert alignment.abort(ONE) == NOTHING, "the alignment under way is another's"


@looking(100, deep=30)
@given(st.data(), st.integers(1, 4), st.booleans())
def test_every_interleaving_snapshots_once_and_leaves_no_channel_blocked(
    data: st.DataObject, channels: int, mode: bool
) -> None:
    """Barriers 1..n arrive in order on every channel; aborts come at any time."""
    alignment = Alignment(channels, exactly_once=mode)
    position = [1] * channels
    blocked: set[int] = set()
    aborted: set[int] = set()
    completed: list[int] = []
    last = 5
    while min(position) <= last:
        ready = [c for c in range(channels) if c not in blocked and position[c] <= last]
        newest = max(position) if blocked else max(position) - 1
        may_abort = [n for n in range(1, last + 1) if n not in aborted | set(completed)]
        if may_abort and (not ready or data.draw(st.integers(0, 9)) == 0):
            # Only the checkpoint in progress is ever aborted, and it always can be.
            gone = max(1, min(newest, last)) if not ready else may_abort[0]
            aborted.add(gone)
            if alignment.abort(CheckpointId(gone)).unblock:
                blocked.clear()
            continue
        assert ready, "a deadlock that no abort resolves"
        channel = data.draw(st.sampled_from(ready))
        number = position[channel]
        position[channel] += 1
        decision = reached(alignment, channel, CheckpointId(number))
        if decision.unblock:
            blocked.clear()
        if decision.block:
            assert mode
            blocked.add(channel)
        if decision.complete:
            assert min(position) > number, "complete before it arrived everywhere"
            assert number not in completed and number not in aborted
            completed.append(number)
    assert blocked == set()
    assert completed == sorted(completed)


def test_a_channel_that_ended_has_reached_the_barrier_awaited_and_all_later_ones() -> None:
    alignment = exactly_once(3)
    assert reached(alignment, 0, ONE) == Aligned(block=True)
    assert alignment.ended(1, 0.0) == NOTHING
    assert reached(alignment, 2, ONE) == Aligned(unblock=True, complete=True)
    assert reached(alignment, 0, TWO) == Aligned(block=True)
    assert alignment.ended(2, 0.0) == Aligned(unblock=True, complete=True)


def test_where_all_channels_ended_a_barrier_is_reached_as_soon_as_it_is_heard_of() -> None:
    for order in ("aligned", "may-switch", "unaligned"):
        alignment = Alignment(2, exactly_once=True, switching=Switching(1.0))
        assert alignment.ended(0, 0.0) == alignment.ended(1, 0.0) == NOTHING
        decision = alignment.announced(Barrier(ONE, 0.0, order=order), 0.0)
        assert decision.complete and not decision.overtake


def test_a_channel_that_ended_is_no_reason_not_to_overtake_the_others() -> None:
    alignment = Alignment(2, exactly_once=True, switching=Switching(1.0), stay_aligned=[1])
    barrier = Barrier(ONE, 0.0, order="unaligned")
    assert alignment.announced(barrier, 0.0) == NOTHING
    assert alignment.ended(1, 0.0) == Aligned(unblock=True, overtake=True)
    assert alignment.reached == {1}
