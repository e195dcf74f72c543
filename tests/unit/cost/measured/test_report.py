"""A report says what is missing and never guesses; damage and dropped checkpoints never count."""

import asyncio
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from tests.support.damage import last_segment
from tests.support.jobs import filled, store_of, virtual_effects
from tests.unit.cost.measured.facts import WHO, blocks, history, snapshot, steady
from tests.unit.cost.measured.jobs import aggregate, aggregated, run, windowed
from tests.unit.cost.measured.measuring import measured, operator
from tidelog import CorruptObjectError, RestoreError, Schedule
from tidelog.concurrency import Progress
from tidelog.cost.measured.analysis import log_usage, measure
from tidelog.cost.measured.facts import BlockFacts, StoredBytes
from tidelog.cost.measured.history import read_history
from tidelog.cost.measured.intervals import contiguous_runs
from tidelog.cost.measured.operators import report_operators
from tidelog.cost.measured.report import OverheadReport
from tidelog.engines import LocalEngine, WorkerConfig
from tidelog.ids import Slot
from tidelog.storage import object_names


def test_figures_of_a_steady_log_are_exact() -> None:
    snapshots = steady(45, 10)
    (found,) = report_operators(history(snapshots), blocks(snapshots))
    assert found.changes_per_s == 5
    assert found.bytes_per_change is not None
    assert (found.bytes_per_change.raw, found.bytes_per_change.stored) == (20, 10)
    assert found.interval_s == 10
    assert found.peak is not None
    assert found.peak.predicted_bytes == found.peak.measured_bytes == 5 * 10 * 10
    assert found.peak.ratio == 1
    assert found.most_log_bytes == 500


def test_with_one_materialization_the_way_to_more_is_named() -> None:
    snapshots = steady(15, 10)
    (found,) = report_operators(history(snapshots), blocks(snapshots))
    assert found.peak is None and found.compared == 0
    assert found.missing is not None
    assert "expected two materializations or more" in found.missing
    assert "found 1 in 15.0 s" in found.missing
    assert "--retain N` with a larger N, 180 for the interval of 60 s" in found.missing
    assert found.changes_per_s == 5


def test_without_changes_or_time_the_report_says_so() -> None:
    idle = [snapshot(slot, slot, 7, 7) for slot in range(5)]
    (found,) = report_operators(history(idle), BlockFacts())
    assert found.missing == "nothing was changed while these checkpoints were written"
    alone = [snapshot(3, 3, 7)]
    (found,) = report_operators(history(alone), blocks(alone))
    assert found.missing is not None and "two checkpoints in a row" in found.missing
    assert found.changes_per_s is None


def test_subtasks_of_another_parallelism_are_not_mixed_in() -> None:
    before = [replace(each, points={}) for each in steady(30, 10)]
    after = [replace(each, generation=31) for each in steady(75, 10, first=32)]
    (found,) = report_operators(history([*before, *after]), blocks(after))
    assert found.changes_per_s == 5 and found.compared == 1
    assert found.log_bytes == sum(s.points[WHO].log_bytes for s in after) / len(after)


def test_a_store_with_few_checkpoints_has_a_report_without_comparison() -> None:
    report = measured(filled())
    assert not report.compared
    found = operator(report, "process")
    assert found.missing is not None and "tidelog run ... --retain" in found.missing
    assert found.bytes_per_change is not None


def test_stateless_operators_are_left_out() -> None:
    assert [each.id for each in measured(windowed(5)).operators] == ["source", "window"]


def test_the_end_of_the_data_is_no_steady_run() -> None:
    report = measured(windowed(5))
    assert f"slot {report.last_slot} ended the job" in " ".join(report.notes)


def test_peaks_that_checkpoints_see_coarsely_are_said_to_be_so() -> None:
    seldom = run(aggregate, seconds=70.0, checkpoint=Schedule(interval=4.0))
    assert any("shows the log at steps of 20%" in note for note in measured(seldom).notes)
    assert not any("at steps of" in note for note in measured(aggregated()).notes)


def test_a_job_without_changelog_has_no_log_to_compare() -> None:
    report = measured(run(aggregate, seconds=10.0, changelog=False))
    found = operator(report, "sum")
    assert found.most_log_bytes == 0 and found.bytes_per_change is None and found.peak is None
    assert found.missing is not None and "`--no-changelog`" in found.missing


def test_a_missing_segment_is_damage_not_a_smaller_log() -> None:
    objects = dict(aggregated())
    newest = max(slot for name in objects if (slot := object_names.slot_of(name)) is not None)
    del objects[last_segment(objects, newest)]
    with pytest.raises(CorruptObjectError, match="tidelog inspect"):
        measured(objects)


class Dropping(LocalEngine):
    """The engine of this process, while the job drops its oldest checkpoints and their log."""

    gone: ClassVar[list[str]] = []

    async def run(self, units: Any, progress: Progress) -> list[Any]:
        for name in self.gone:
            await self.store.delete(name)
        return await super().run(units, progress)


def test_checkpoints_that_are_dropped_meanwhile_are_left_out() -> None:
    store = store_of(aggregated())
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
        store = store_of(aggregated())
        engine = Dropping(store, virtual_effects(), WorkerConfig(store.url))
        Dropping.gone = [object_names.checkpoint(Slot(slot)) for slot in slots]
        Dropping.gone += {name for slot in slots for name in log[Slot(slot)]} - (
            newest if checkpoints[-1].slot not in slots else set()
        )
        return asyncio.run(measure(store, engine))

    report = measured_while_dropping(*dropped)
    assert (report.checkpoints, report.first_slot) == (len(left), left[0])
    assert f"left out: {len(dropped)} checkpoints" in report.notes[0]
    with pytest.raises(RestoreError, match="retain"):
        measured_while_dropping(*log)


def test_objects_of_the_log_are_counted_where_none_is_missed() -> None:
    named = [frozenset({"a"}), frozenset({"a", "b"}), frozenset({"b", "c"}), frozenset({"z"})]
    slots = [1, 2, 3, 9]
    found = [
        replace(snapshot(slot, 10 * slot, 0), segments=names, manifest_bytes=100 + slot)
        for slot, names in zip(slots, named, strict=True)
    ]
    stored = StoredBytes({"a": 10, "b": 20, "c": 60, "z": 30}, 1_000)
    usage = log_usage(contiguous_runs(found), stored)
    assert usage is not None
    segment, manifest = usage.flows
    # b and c, and two manifests, in the 20 s between slot 1 and slot 3.
    assert (segment.per_s, segment.bytes, segment.stored_bytes) == (0.1, 30, 120)
    assert (manifest.per_s, manifest.stored) == (0.1, 4)
    assert log_usage(contiguous_runs(found[:1]), stored) is None


def test_space_amplification_is_what_is_stored_over_the_newest_tables() -> None:
    objects = aggregated()
    report = measured(objects)
    stored = sum(map(len, objects.values()))
    assert report.stored_bytes == stored
    assert report.space_amplification == stored / report.table_bytes
    assert report.table_bytes > 0
