"""Intervals are seen only where both of their ends and their fullest checkpoint are retained."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.cost.measured.facts import CHANGE_BYTES, WHO, blocks, snapshot, steady
from tidelog.cost.measured.intervals import (
    change_rate,
    contiguous_runs,
    cuts,
    intervals,
    points_of,
    seconds,
)


def test_a_materialization_is_dated_between_the_checkpoints_around_its_last_change() -> None:
    points = points_of([snapshot(1, 10, 100), snapshot(2, 12, 200), snapshot(3, 13, 300, 150)], WHO)
    assert [(cut.upto, cut.at_ms, cut.first) for cut in cuts(points)] == [
        (0, None, 0),
        (150, 11_000, 2),
    ]


def test_a_materialization_before_the_first_checkpoint_has_no_date() -> None:
    points = points_of([snapshot(1, 10, 100, 50), snapshot(2, 12, 200, 50)], WHO)
    assert [cut.at_ms for cut in cuts(points)] == [None]


def test_the_interval_before_the_first_and_after_the_last_materialization_are_left_out() -> None:
    history = steady(35, 10)
    found = intervals(WHO, points_of(history, WHO), blocks(history).by_log)
    assert [(each.start_ms, each.end_ms) for each in found] == [
        (10_000, 20_000),
        (20_000, 30_000),
    ]
    for each in found:
        assert each.changes == 50
        # The table frozen after 10 s is first used by the checkpoint at 11 s.
        assert each.checkpoints == 10
        assert each.peak_bytes == 50 * CHANGE_BYTES
        assert each.peak_slot * 1000 == each.end_ms


def test_one_materialization_makes_no_interval() -> None:
    history = steady(15, 10)
    assert intervals(WHO, points_of(history, WHO), blocks(history).by_log) == []


def test_a_pause_without_changes_belongs_to_the_interval_in_which_it_lies() -> None:
    seqnos = [0, 10, 20, 20, 20, 30, 40]
    uptos = [0, 0, 10, 10, 10, 10, 30]
    history = [
        snapshot(at, at, *figures) for at, figures in enumerate(zip(seqnos, uptos, strict=True))
    ]
    (found,) = intervals(WHO, points_of(history, WHO), blocks(history).by_log)
    assert (found.start_ms, found.end_ms, found.changes) == (1_000, 5_000, 20)


def test_a_missing_slot_a_restart_and_the_end_of_the_job_split_a_history() -> None:
    snapshots = [
        snapshot(1, 1, 10),
        snapshot(2, 2, 20),
        snapshot(4, 4, 40),
        snapshot(5, 5, 50),
        snapshot(7, 90, 55, generation=6),
        snapshot(8, 91, 60, generation=6),
        snapshot(9, 92, 999, generation=6, final=True),
    ]
    found = contiguous_runs(snapshots)
    assert [[each.slot for each in stretch] for stretch in found] == [[1, 2], [4, 5], [7, 8], [9]]
    assert seconds(found) == 3
    rate = change_rate(points_of(stretch, WHO) for stretch in found)
    assert (rate.count, rate.per_s) == (25, 25 / 3)


def test_a_clock_that_goes_back_splits_a_history() -> None:
    found = contiguous_runs([snapshot(1, 9, 10), snapshot(2, 3, 20), snapshot(3, 4, 30)])
    assert [len(stretch) for stretch in found] == [1, 2]


def test_checkpoints_of_one_moment_have_no_rate() -> None:
    stretch = [snapshot(1, 1, 10), snapshot(2, 1, 20)]
    assert change_rate([points_of(stretch, WHO)]).per_s is None


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[float, int, int]]:
    """(time, seqno, upto) of checkpoints: all grow, and no table is newer than its checkpoint."""
    steps = draw(
        st.lists(st.tuples(st.integers(1, 5_000), st.integers(0, 50), st.floats(0, 1)), min_size=2)
    )
    at, seqno, upto, found = 0, 0, 0, []
    for wait, changes, share in steps:
        at, seqno = at + wait, seqno + changes
        if share > 0.5:
            upto = max(upto, int(seqno * share))
        found.append((at / 1000, seqno, upto))
    return found


@given(histories())
def test_intervals_follow_each_other_within_their_stretch(
    figures: list[tuple[float, int, int]],
) -> None:
    history = [snapshot(slot, *each) for slot, each in enumerate(figures)]
    found = intervals(WHO, points_of(history, WHO), blocks(history).by_log)
    assert len(found) <= max(0, len({upto for _, _, upto in figures}) - 1)
    for each in found:
        assert history[0].created_ms <= each.start_ms < each.end_ms <= history[-1].created_ms
        assert each.changes > 0 and each.checkpoints > 0
        assert each.peak_bytes == each.peak_changes * CHANGE_BYTES
        log = [s.points[WHO] for s in history if s.slot == each.peak_slot]
        assert log[0].log_bytes == each.peak_bytes
    for before, after in pairwise(found):
        assert before.end_ms <= after.start_ms
