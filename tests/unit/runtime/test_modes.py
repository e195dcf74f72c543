"""What a failure costs in each mode: the page views of two applications, number by number.

Two partitions feed one consumer that counts views by application. When the checkpoint starts,
offsets 0 to 9999 of partition 0 and 0 to 10004 of partition 1 have been read: 8000 views of app0
and 12005 of app1. Partition 1 hands its barrier over at once and reads on, 10005 to 10200: 151
views of app0 and 45 of app1. Only then comes the barrier of partition 0.
"""

from collections import Counter
from itertools import chain

import pytest

from tests.support.page_views import Partition, fail_after_a_checkpoint
from tidelog.runtime.config import Mode

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
COUNTED = {APP0: 8000, APP1: 12_005}


def test_the_arrangement_is_the_one_described() -> None:
    assert Counter(BEFORE_0 + BEFORE_1) == COUNTED
    assert len(PARTITION_1.views) - 1 == 10_200, "the last offset that partition 1 has"


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
    assert outcome.resumed[APP1] - TRUTH[APP1] == 45


@pytest.mark.parametrize("mode", ["exactly-once", "at-least-once"])
def test_with_one_input_both_modes_count_every_view_once(mode: Mode) -> None:
    """There is no second barrier to wait for, so nothing is read between the barriers."""
    outcome = fail_after_a_checkpoint((PARTITION_1,), mode)
    assert outcome.offsets == (10_005,)
    assert outcome.counts == {APP0: 4000, APP1: 6005}
    assert outcome.resumed == Counter(PARTITION_1.views)
