"""Alignment blocks what it must and nothing longer than it must.

What a failure costs in each mode: the page views of two applications, number by number.

Two partitions feed one consumer that counts views by application. When the checkpoint starts,
offsets 0 to 9999 of partition 0 and 0 to 10004 of partition 1 have been read: 8000 views of app0
and 12005 of app1. Partition 1 hands its barrier over at once and reads on, 10005 to 10200: 151
views of app0 and 45 of app1. Only then comes the barrier of partition 0.
"""

from collections import Counter
from itertools import chain

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.property.profiles import looking
from tests.support.page_views import Partition, fail_after_a_checkpoint
from tidelog.ids import CheckpointId
from tidelog.runtime.channels.messages import Barrier
from tidelog.runtime.config import Mode
from tidelog.runtime.tasks.alignment import Aligned, Alignment

ONE, TWO = CheckpointId(1), CheckpointId(2)
NOTHING = Aligned()


def reached(alignment: Alignment, channel: int, checkpoint: CheckpointId) -> Aligned:
    return alignment.barrier(channel, Barrier(checkpoint, 0.0), 0.0)


def test_exactly_once_blocks_a_channel_until_the_barrier_came_on_all() -> None:
    alignment = Alignment(3, exactly_once=True)
    assert reached(alignment, 0, ONE) == Aligned(block=True)
    assert reached(alignment, 2, ONE) == Aligned(block=True)
    assert alignment.aligning == ONE
    assert reached(alignment, 1, ONE) == Aligned(unblock=True, complete=True)
    assert alignment.aligning is None


def test_at_least_once_never_blocks() -> None:
    alignment = Alignment(3, exactly_once=False)
    decisions = [reached(alignment, channel, ONE) for channel in (0, 2, 1)]
    assert decisions == [NOTHING, NOTHING, Aligned(complete=True)]


@looking(100)
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
    alignment = Alignment(3, exactly_once=True)
    assert reached(alignment, 0, ONE) == Aligned(block=True)
    assert alignment.ended(1, 0.0) == NOTHING
    assert reached(alignment, 2, ONE) == Aligned(unblock=True, complete=True)
    assert reached(alignment, 0, TWO) == Aligned(block=True)
    assert alignment.ended(2, 0.0) == Aligned(unblock=True, complete=True)


APP0, APP1 = "app0", "app1"


def views(**counts: int) -> tuple[str, ...]:
    return tuple(chain.from_iterable([name] * count for name, count in counts.items()))


BEFORE_0 = views(app0=4000, app1=6000)
BEFORE_1 = views(app1=6005, app0=4000)
BETWEEN = views(app1=45, app0=151)
AFTER_0 = views(app0=70, app1=30)

PARTITION_0 = Partition(BEFORE_0 + AFTER_0, goes_on=10_000, slow=True)
PARTITION_1 = Partition(BEFORE_1 + BETWEEN, goes_on=10_005)
TRUTH = Counter(PARTITION_0.views + PARTITION_1.views)


def test_aligned_the_checkpoint_counts_just_what_lies_below_its_offsets() -> None:
    outcome = fail_after_a_checkpoint((PARTITION_0, PARTITION_1), "exactly-once")
    assert outcome.offsets == (10_000, 10_005)
    assert outcome.counts == {APP0: 8000, APP1: 12_005}
    assert outcome.resumed == TRUTH


def test_not_aligned_what_was_read_between_the_barriers_counts_twice_after_a_failure() -> None:
    outcome = fail_after_a_checkpoint((PARTITION_0, PARTITION_1), "at-least-once")
    assert outcome.offsets == (10_000, 10_005)
    assert outcome.counts == {APP0: 8151, APP1: 12_050}
    # The offsets lie before these views and the counts behind them, so they come again.
    assert outcome.resumed == TRUTH + Counter(BETWEEN)


@pytest.mark.parametrize("mode", ["exactly-once", "at-least-once"])
def test_with_one_input_both_modes_count_every_view_once(mode: Mode) -> None:
    """There is no second barrier to wait for, so nothing is read between the barriers."""
    outcome = fail_after_a_checkpoint((PARTITION_1,), mode)
    assert outcome.offsets == (10_005,)
    assert outcome.counts == {APP0: 4000, APP1: 6005}
    assert outcome.resumed == Counter(PARTITION_1.views)
