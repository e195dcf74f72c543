"""Intervals are seen only where both of their ends and their fullest checkpoint are retained.

What the formulas predict of the log is what the runtime leaves in a store, within 10 %.

Three jobs run on the real tasks, write buffers, uploader, checkpoints and materializations, in
virtual time: rates come from counts of records and from the times that manifests record.

A report says what is missing and never guesses; damage and dropped checkpoints never count.
"""

import asyncio
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.damage import last_segment
from tests.support.depth import more_in_depth
from tests.support.jobs import config, filled, restarted, store_of, virtual_effects, word_count
from tests.unit.cost.measured.facts import WHO, blocks, snapshot, steady
from tests.unit.cost.measured.jobs import (
    AGGREGATED_PER_S,
    CHECKPOINT_S,
    INTERVAL_S,
    KEYS,
    PER_S,
    aggregate,
    few_windows,
    left_by,
    measured,
    operator,
    windows,
)
from tidelog import RestoreError
from tidelog.checkpoint.manifest import OperatorState, StateInfo
from tidelog.concurrency import Progress
from tidelog.cost.measured.analysis import log_usage, measure
from tidelog.cost.measured.facts import MeasuredSnapshot, intervals, points_of
from tidelog.cost.measured.history import read_history
from tidelog.cost.measured.operators import combine_of, report_operators
from tidelog.cost.measured.report import OperatorReport, OverheadReport
from tidelog.cost.model.formulas import log_peak_bytes, window_log_peak_bytes
from tidelog.cost.model.job import expected_distinct
from tidelog.engines import LocalEngine, WorkerConfig
from tidelog.ids import Slot
from tidelog.storage import object_names


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
        log = [s.points[WHO] for s in history if s.slot == each.peak_checkpoint]
        assert log[0].log_bytes == each.peak_bytes
    for before, after in pairwise(found):
        assert before.end_ms <= after.start_ms


WITHIN = 0.1


def check_peaks(found: OperatorReport) -> None:
    """The peaks of an operator's log and of each subtask's are predicted within `WITHIN`."""
    assert found.compared == len(found.subtasks) == 2
    assert found.peak is not None and found.peak.ratio == pytest.approx(1, abs=WITHIN)
    assert found.interval_s == pytest.approx(INTERVAL_S, rel=0.01)
    for subtask in found.subtasks:
        assert subtask.peak is not None and subtask.peak.ratio == pytest.approx(1, abs=WITHIN)
        assert len(subtask.intervals) >= 2
        for interval in subtask.intervals:
            assert interval.checkpoints == INTERVAL_S / CHECKPOINT_S
            assert interval.seconds == pytest.approx(INTERVAL_S, rel=0.02)
            assert subtask.changes_per_s is not None
            logged = subtask.changes_per_s * INTERVAL_S
            assert interval.changes == pytest.approx(logged, rel=WITHIN)


def test_the_log_of_a_keyed_aggregate_is_rate_x_bytes_x_interval() -> None:
    found = operator(measured(left_by(aggregate)), "sum")
    check_peaks(found)
    # A flush a second logs each key once, however often it came.
    rate = expected_distinct(KEYS, 0.0, AGGREGATED_PER_S)
    assert found.changes_per_s == pytest.approx(rate, rel=WITHIN)
    assert found.peak is not None and found.bytes_per_change is not None
    predicted = log_peak_bytes(rate, found.bytes_per_change.stored, INTERVAL_S)
    assert found.peak.measured_bytes == pytest.approx(predicted, rel=WITHIN)
    assert found.windows is None


@pytest.mark.parametrize("per_record", more_in_depth([5], [10, 5]))
def test_the_log_of_sliding_windows_is_twice_their_rate_x_bytes_x_interval(per_record: int) -> None:
    found = operator(measured(left_by(windows, per_record)), "window")
    check_peaks(found)
    rule = found.windows
    assert rule is not None and rule.peak.ratio == pytest.approx(1, abs=WITHIN)
    # Every record has a key of its own, so a slice, and all of its windows fire, each by a timer.
    rows_per_s = PER_S * (1 + per_record)
    assert rule.deletes_per_s == pytest.approx(rows_per_s, rel=WITHIN)
    assert rule.writes_per_row == pytest.approx(1, abs=WITHIN)
    assert found.bytes_per_change is not None
    predicted = window_log_peak_bytes(rows_per_s, found.bytes_per_change.stored, INTERVAL_S)
    assert rule.peak.measured_bytes == pytest.approx(predicted, rel=WITHIN)


def test_windows_that_are_written_more_than_once_are_said_to_exceed_the_rule() -> None:
    found = operator(measured(left_by(few_windows)), "window")
    rule = found.windows
    assert found.peak is not None and found.peak.ratio == pytest.approx(1, abs=WITHIN)
    # A record per key and 2.5 seconds, so of twenty flushes seven find a window changed; its timer
    # is written once.
    assert rule is not None and 3 < rule.writes_per_row < 5
    assert rule.peak.ratio is not None and rule.peak.ratio < 0.6


def counted(slot: int, seqno: int, updates: int, generation: int = 0) -> MeasuredSnapshot:
    """A checkpoint that counts updates."""
    bare = snapshot(slot, slot, seqno, generation=generation)
    return replace(bare, points={WHO: replace(bare.points[WHO], updates=updates)})


def test_only_what_lies_between_checkpoints_counts() -> None:
    # The count began at the second change; before a restart something else was counted.
    found = [
        [counted(1, 10, 8), counted(2, 20, 38)],
        [counted(5, 30, 100, generation=4), counted(6, 40, 150, generation=4)],
        [counted(9, 900, 9_000)],
    ]
    assert combine_of(found).factor == (30 + 50) / (10 + 10)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ([[counted(1, 10, 5), counted(2, 10, 5)]], "nothing was changed"),
        ([[counted(1, 10, 5)]], "expected two checkpoints in a row"),
        ([], "expected two checkpoints in a row"),
    ],
)
def test_without_two_counts_there_is_a_reason(
    found: list[list[MeasuredSnapshot]], reason: str
) -> None:
    combine = combine_of(found)
    assert combine.factor is None and combine.reason is not None and reason in combine.reason


def test_the_write_buffer_of_a_real_job_combines_what_the_formula_says() -> None:
    combine = measured(left_by(aggregate)).combine
    # Records are flushed once a second; the positions of the source are none of them.
    changes = expected_distinct(KEYS, 0.0, AGGREGATED_PER_S)
    assert combine.factor == pytest.approx(AGGREGATED_PER_S / changes, rel=0.02)


def test_positions_of_sources_are_no_updates() -> None:
    moves = [[counted(1, 10, 8), counted(2, 20, 38)]]
    assert combine_of(moves).factor == 30 / 10
    assert combine_of(moves, {WHO.operator}).factor is None


def test_a_restart_goes_on_counting() -> None:
    store = restarted(word_count, config(retain=20, table="memory"))
    _, checkpoints = asyncio.run(read_history(store))
    assert len({checkpoint.author for checkpoint in checkpoints}) == 2
    counts = [[state.updates for _, state in each.subtasks()] for each in checkpoints]
    for before, after in pairwise(counts):
        assert all(one <= other for one, other in zip(before, after, strict=True))
    for _, state in checkpoints[-1].subtasks():
        assert state.updates >= state.seqno > 0


def test_figures_of_a_steady_log_are_exact() -> None:
    snapshots = steady(45, 10)
    count = OperatorState(WHO.operator, 1, (StateInfo(0, "count", "value", ("n int",)),), ())
    (found,) = report_operators(snapshots, [count], blocks(snapshots))
    assert found.changes_per_s == 5
    assert found.bytes_per_change is not None
    assert (found.bytes_per_change.raw, found.bytes_per_change.stored) == (20, 10)
    assert found.interval_s == 10
    assert found.peak is not None
    assert found.peak.predicted_bytes == found.peak.measured_bytes == 5 * 10 * 10
    assert found.peak.ratio == 1
    assert found.most_log_bytes == 500


def test_a_store_with_few_checkpoints_has_a_report_without_comparison() -> None:
    report = measured(filled())
    assert not report.compared
    found = operator(report, "process")
    assert found.missing is not None and "tidelog run ... --retain" in found.missing
    assert found.bytes_per_change is not None


def test_a_missing_segment_is_damage_not_a_smaller_log() -> None:
    objects = dict(left_by(aggregate))
    newest = max(slot for name in objects if (slot := object_names.slot_of(name)) is not None)
    gone = last_segment(objects, newest)
    del objects[gone]
    with pytest.raises(RestoreError, match=f"log segment {gone}.*no such object"):
        measured(objects)


class Dropping(LocalEngine):
    """The engine of this process, while the job drops its oldest checkpoints and their log."""

    gone: ClassVar[list[str]] = []

    async def run(self, units: Any, progress: Progress) -> list[Any]:
        for name in self.gone:
            await self.store.delete(name)
        return await super().run(units, progress)


def test_checkpoints_that_are_dropped_meanwhile_are_left_out() -> None:
    store = store_of(left_by(aggregate))
    _, checkpoints = asyncio.run(read_history(store))
    log = {
        each.slot: {part.segment for _, state in each.subtasks() for part in state.log}
        for each in checkpoints
    }
    newest = log[checkpoints[-1].slot]
    left = [slot for slot, segments in log.items() if segments <= newest]
    dropped = set(log) - set(left)
    assert dropped and len(left) > 1

    def measured_while_dropping(*slots: int) -> OverheadReport:
        store = store_of(left_by(aggregate))
        engine = Dropping(store, virtual_effects(), WorkerConfig(store.url))
        Dropping.gone = [object_names.checkpoint(Slot(slot)) for slot in slots]
        Dropping.gone += {name for slot in slots for name in log[Slot(slot)]} - (
            newest if checkpoints[-1].slot not in slots else set()
        )
        return asyncio.run(measure(store, engine))

    report = measured_while_dropping(*dropped)
    assert (report.checkpoints, report.first_checkpoint) == (len(left), left[0])
    assert f"left out: {len(dropped)} checkpoints" in report.notes[0]
    with pytest.raises(RestoreError, match="retain"):
        measured_while_dropping(*log)


def test_space_amplification_is_what_is_stored_over_the_newest_tables() -> None:
    objects = left_by(aggregate)
    report = measured(objects)
    stored = sum(map(len, objects.values()))
    assert report.stored_bytes == stored
    assert report.space_amplification == stored / report.table_bytes
    assert report.table_bytes > 0


def test_a_log_so_slow_that_no_new_segment_is_among_the_checkpoints_is_billed_all_the_same() -> (
    None
):
    stored = {"segments/a.seg": 10_000, "segments/b.seg": 10_000}
    segments = frozenset(stored)
    slow = [replace(each, segments=segments) for each in steady(2, 60)]
    usage = log_usage([slow], stored)
    assert usage is not None
    flow = next(each for each in usage.flows if each.kind == "segment")
    assert flow.stored_bytes == pytest.approx(20_000)
    assert 0 < flow.per_s < 0.1, "many checkpoints share a segment"
